"""Word errors of a transcript against the clip's text, after one documented normalization.

Both texts are lower-cased (Unicode casefold), apostrophes inside words are dropped, every other character that is
neither a letter nor a digit becomes a space, and runs of space are one. Numbers are not rewritten.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

import jiwer

# Callers say the same clips again and again, and an endpoint mostly understands the same. Longer texts would take
# memory that an endpoint decides on.
REMEMBERED_PAIRS: Final = 1024
REMEMBERED_CHARS: Final = 1000
_APOSTROPHES = re.compile(r"(?<=\w)['\u2019](?=\w)")
_NOT_WORD = re.compile(r"[\W_]+")


def normalize(text: str) -> str:
    """The text as words separated by single spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _NOT_WORD.sub(" ", _APOSTROPHES.sub("", folded)).strip()


def word_errors(reference: str, hypothesis: str) -> tuple[int, int]:
    """(substitutions + deletions + insertions, words of the reference). A reference without words gives (0, 0)."""
    is_short = len(reference) + len(hypothesis) <= REMEMBERED_CHARS
    return _remembered(reference, hypothesis) if is_short else _counted(reference, hypothesis)


def _counted(reference: str, hypothesis: str) -> tuple[int, int]:
    expected, heard = normalize(reference), normalize(hypothesis)
    words = len(expected.split())
    if not words:
        return 0, 0
    if not heard:
        return words, words
    if heard == expected:
        return 0, words
    found = jiwer.process_words(expected, heard)
    return found.substitutions + found.deletions + found.insertions, words


_remembered = lru_cache(REMEMBERED_PAIRS)(_counted)
