"""The texts that the audit looks for: the personal data of utterances, and every five words of them in a row.

The words are looked for as well because nothing finds all personal data in a text; whatever of an utterance is written
anywhere shows that it was not left out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from telemetry.model.personal_data import digit_runs

WORDS: Final = 5
# Numbers of fewer digits occur in times and sizes by themselves.
_DIGITS_MIN: Final = 7
_NAME_CHARS_MIN: Final = 8
_NAME: Final = re.compile(r"\b[A-Z][a-z]+(?: [A-Z][a-z]+)+\b")
_NOT_WORD: Final = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Needle:
    """Something that must not be found: `form` has only letters and digits, in lower case."""

    form: str
    source: str
    is_number: bool = False


def plain(text: str) -> str:
    """A text's letters and digits, in lower case: all else is separators, and hides nothing."""
    return _NOT_WORD.sub("", text.casefold())


def of_text(source: str, text: str) -> set[Needle]:
    """Return what must not be found of an utterance."""
    words = [word for word in _NOT_WORD.split(text) if word]
    windows = [words[at : at + WORDS] for at in range(len(words) - WORDS + 1)] or [words]
    found = {Needle(plain("".join(window)), source) for window in windows}
    for run in digit_runs(text):
        if len(run.digits) >= _DIGITS_MIN:
            found.add(Needle(run.digits, source, is_number=True))
        if run.has_words and len(run.digits) > WORDS:
            found.add(Needle(plain(text[run.begin : run.end]), source))
    found |= {Needle(plain(name[0]), source) for name in _NAME.finditer(text) if len(name[0]) > _NAME_CHARS_MIN}
    return found


def of_value(source: str, value: str) -> set[Needle]:
    """Return what must not be found of a number or an address."""
    form = plain(value)
    return {Needle(form, source, is_number=form.isdecimal())}


def of_texts(texts: Iterable[tuple[str, str]]) -> frozenset[Needle]:
    """Return what must not be found of utterances, given as their names and their texts."""
    return frozenset().union(*(of_text(source, text) for source, text in texts))
