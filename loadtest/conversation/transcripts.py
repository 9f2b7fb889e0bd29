"""Word errors of a transcript against the clip's text, after one documented normalization.

Case, punctuation, apostrophes, optional vowel points, and the way in which a number is written make no error
(`normalization`, docs/explanation/what-is-measured.md). Scripts without spaces between words are counted by character.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import jiwer

from loadtest.conversation.normalization import numbers, words
from loadtest.conversation.normalization.words import UNDETERMINED

# Callers say the same clips again and again, and an endpoint mostly understands the same. Longer texts would take
# memory that an endpoint decides on.
REMEMBERED_PAIRS: Final = 1024
REMEMBERED_CHARS: Final = 1000


def normalize(text: str, language: str = UNDETERMINED) -> str:
    """The text as units separated by single spaces: words, or characters of a script without spaces.

    `language` is a BCP 47 tag; number words of a text in no stated language are read as English.
    """
    return " ".join(_reference_units(text, _spoken(language))[0])


@lru_cache(REMEMBERED_PAIRS)
def reference_characters(reference: str, language: str = UNDETERMINED) -> int:
    """Return how many of the reference words that `word_errors` counts are characters of a text without spaces.

    In most texts all or none.
    """
    units, by_character = _reference_units(reference, _spoken(language))
    return sum(len(unit) == 1 for unit in units) if by_character else 0


def word_errors(reference: str, hypothesis: str, language: str = UNDETERMINED) -> tuple[int, int]:
    """(substitutions + deletions + insertions, words of the reference). A reference without words gives (0, 0).

    `language` is the BCP 47 tag of the reference. Where none is stated, numbers are read in the language that agrees
    best with both texts.
    """
    is_short = len(reference) + len(hypothesis) <= REMEMBERED_CHARS
    return _remembered(reference, hypothesis, language) if is_short else _counted(reference, hypothesis, language)


def _counted(reference: str, hypothesis: str, language: str) -> tuple[int, int]:
    spoken = _spoken(language)
    errors, count = _counted_in(reference, hypothesis, spoken)
    if words.primary_language(language) != UNDETERMINED or not errors or not _has_digit(reference + hypothesis):
        return errors, count
    others = (_counted_in(reference, hypothesis, other) for other in numbers.LANGUAGES if other != spoken)
    return min(((errors, count), *others), key=lambda counted: counted[0])


def _spoken(language: str) -> str:
    """The language whose number words are read: English where none is stated."""
    primary = words.primary_language(language)
    return "en" if primary == UNDETERMINED else primary


def _has_digit(text: str) -> bool:
    return any(map(str.isdecimal, text))


def _reference_units(text: str, language: str) -> tuple[list[str], bool]:
    """The units of a reference, and whether errors are counted by character."""
    normal = words.normalized(text, language)
    by_character = words.counts_characters(normal, language)
    return words.units(normal, by_character=by_character), by_character


def _counted_in(reference: str, hypothesis: str, language: str) -> tuple[int, int]:
    expected, by_character = _reference_units(reference, language)
    if not expected:
        return 0, 0
    heard = words.units(words.normalized(hypothesis, language), by_character=by_character)
    if not heard:
        return len(expected), len(expected)
    errors = _distance(expected, heard)
    if errors and not by_character:
        errors = min(errors, *(_distance(expected, cut) for cut in words.cut_numbers(expected, heard)))
    return errors, len(expected)


def _distance(expected: Sequence[str], heard: Sequence[str]) -> int:
    """The fewest substitutions, deletions and insertions that make one of the other."""
    if expected == heard:
        return 0
    alignment = jiwer.process_words(" ".join(expected), " ".join(heard))
    return alignment.substitutions + alignment.deletions + alignment.insertions


_remembered = lru_cache(REMEMBERED_PAIRS)(_counted)
