"""Word errors after one documented normalization."""

import pytest

from loadtest.conversation import transcripts
from loadtest.conversation.transcripts import REMEMBERED_CHARS, REMEMBERED_PAIRS, normalize, word_errors


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Turn the Light ON!", "turn the light on"),
        ("What's the time?", "whats the time"),
        ("  two\u2019s -- company ", "twos company"),
        ("Stra\u00dfe", "strasse"),
        ("", ""),
    ],
)
def test_normalization(text: str, words: str) -> None:
    assert normalize(text) == words


@pytest.mark.parametrize(
    ("reference", "hypothesis", "expected"),
    [
        ("go forward ten meters", "Go forward, ten meters.", (0, 4)),
        ("go forward ten meters", "go four ten meters", (1, 4)),
        ("go forward ten meters", "go forward meters", (1, 4)),
        ("go forward", "please go forward now", (2, 2)),
        ("go forward", "", (2, 2)),
        ("go forward", "...", (2, 2)),
        ("!", "anything", (0, 0)),
    ],
)
def test_word_errors(reference: str, hypothesis: str, expected: tuple[int, int]) -> None:
    assert word_errors(reference, hypothesis) == expected


@pytest.mark.slow
def test_only_short_texts_are_remembered_and_so_many_of_them() -> None:
    remembered = transcripts._remembered
    remembered.cache_clear()
    assert [word_errors("go on", "go") for _ in range(3)] == [(1, 2)] * 3
    assert (remembered.cache_info().hits, remembered.cache_info().misses) == (2, 1)
    long = "go " * (REMEMBERED_CHARS // 3) + "on"
    assert word_errors("go on", long) == (REMEMBERED_CHARS // 3 - 1, 2)
    assert remembered.cache_info().currsize == 1
    for number in range(REMEMBERED_PAIRS + 1):
        word_errors("go on", f"go {number}")
    assert remembered.cache_info().currsize == REMEMBERED_PAIRS
