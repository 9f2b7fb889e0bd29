"""Word errors after one documented normalization."""

import pytest

from loadtest.conversation.transcripts import normalize, word_errors


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
