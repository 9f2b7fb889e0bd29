"""Word errors of any text in any language: no text differs from itself, and no difference is larger than both."""

from hypothesis import given
from hypothesis import strategies as st

from loadtest.conversation.transcripts import normalize, reference_characters, word_errors

SPOKEN = (
    "ten ",
    "twenty-five ",
    "5 ",
    "1,000 ",
    "3.5 ",
    "$",
    "€",
    "%",
    "3:00 pm ",
    "a.m. ",
    "first ",
    "half a million ",
)
SCRIPTS = (
    "zehn ",
    "cinq pour cent ",
    "二十",
    "百分之",
    "สวัส",
    "\u0e4d\u0e32",
    "दिन ",
    "שָׁ",
    "مَ",
    "İ",
    "\u0307",
    "\u200d",
)
PIECES = st.sampled_from((*SPOKEN, *SCRIPTS))
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=8).map("".join)
LANGUAGES = st.sampled_from(("en-US", "de", "fr-FR", "es", "tr", "zh-CN", "th", "hi", "und", "", "x-none"))


@given(TEXTS, LANGUAGES)
def test_no_text_differs_from_itself(text: str, language: str) -> None:
    errors, words = word_errors(text, text, language)
    assert errors == 0
    assert 0 <= reference_characters(text, language) <= words


@given(TEXTS, TEXTS, LANGUAGES.filter(lambda language: language not in ("und", "")))
def test_errors_are_at_most_the_words_of_the_longer_text(reference: str, hypothesis: str, language: str) -> None:
    errors, words = word_errors(reference, hypothesis, language)
    assert 0 <= errors <= (max(words, len(normalize(hypothesis, language))) if words else 0)
    assert word_errors(reference, "", language) == (words, words)
