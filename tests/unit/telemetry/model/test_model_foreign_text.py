"""What somebody else wrote reaches no terminal raw."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.model.foreign_text import has_control_characters, one_line, several_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – ünïcode 日本 👩‍🚀", "plain – ünïcode 日本 👩‍🚀"),
        ("\x1b]0;owned\x07\x1b[2J", "\\x1b]0;owned\\x07\\x1b[2J"),
        ("one\r\ntwo\tthree\u2028four\x85", "one  two three four "),
        ("abc\u202egnp.exe", "abc\\u202egnp.exe"),
        ("\x9b31m red \x7f", "\\x9b31m red \\x7f"),
        ("lone \ud800", "lone \\ud800"),
        ("joined \u0645\u200c\u062e", "joined \u0645\u200c\u062e"),
        ("tag \U000e0041", "tag \\U000e0041"),
    ],
)
def test_what_could_act_is_written_out_and_the_rest_stays(text: str, shown: str) -> None:
    assert one_line(text) == shown


@given(st.text(st.characters(codec=None), max_size=80), st.integers(1, 60))
def test_any_text_is_one_bounded_line_without_anything_that_acts(text: str, longest: int) -> None:
    shown = one_line(text, longest)
    assert len(shown) <= longest
    assert not has_control_characters(shown)
    assert not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in shown)
    assert shown.splitlines() in ([], [shown])
    shown.encode()  # no surrogate is left that a log could not take
    assert one_line(shown, longest) == shown
    lines = several_lines(text, longest)
    assert len(lines) <= longest
    assert not has_control_characters(lines.replace("\n", "").replace("\t", ""))


def test_a_long_text_says_that_it_is_cut_short() -> None:
    assert one_line("x" * 501) == "x" * 499 + "…"
    assert one_line("x" * 500) == "x" * 500
    assert several_lines("a\r\nb\tc\x1b", 100) == "a\nb\tc\\x1b"


@pytest.mark.parametrize("text", ["\r", "\n", "\x00", "\x1b", "\x7f", "\x80", "\u2028", "\u202e", "\ud800"])
def test_control_characters_are_found(text: str) -> None:
    assert has_control_characters(f"a{text}b")
    assert not has_control_characters("a b\u00a0c 日本 👩‍🚀")
