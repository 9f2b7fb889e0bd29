"""Personal data in texts: what somebody said, wrote or was answered, where it is kept because that was asked for. Pure.

Here it is better to replace too much: whoever dictates a number is not always recognized digit by digit, so that the
check digit of a card is wrong. Any run of digits that is long enough for an account is replaced, spoken or written; the
address and port of a host stay.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from telemetry.model.personal_data import labels, spoken_digits
from telemetry.model.personal_data.numbers import CARD_DIGITS, holds_card, is_phone
from telemetry.model.personal_data.replacing import PersonalKind, PersonalPart, replaced

# So many digits are an account, a customer or a telephone number; years, prices and house numbers have fewer.
DIGITS_MIN: Final = 7
SPOKEN_DIGITS_MIN: Final = 6
_DECIMAL: Final = re.compile(r"[0-9]+[.,][0-9]+")
# Where a connection went, as errors name it: nobody dictates a number with three dots and then a colon.
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_ADDRESS: Final = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}:[1-9][0-9]{{0,4}}")
_SPOKEN_EMAIL: Final = re.compile(
    r"\b\w+(?:[\s.-]+(?:dot|punkt|underscore|unterstrich|dash|minus|hyphen|bindestrich)\s+\w+)*\s+(?:at|ät)\s+"
    r"\w+(?:[\s-]+\w+)?\s+(?:dot|punkt)\s+\w+(?:\s+(?:dot|punkt)\s+\w+)*",
    re.IGNORECASE,
)
_INTRODUCED: Final = re.compile(
    r"(?i:\b(?:my name is|the name of|my name's|i am called|mein name ist|ich heiße|ich heisse|auf den namen))\s+"
    r"(?P<name>\w[\w'-]*(?:\s+[^\W\d_a-zäöüß][\w'-]*){0,3})"
)
# A text in which nothing of this is found, and no name of the list, is as it may be kept. For RE2 as well.
SUSPECT: Final = (
    rf"(?:{labels.SUSPECT})|{spoken_digits.SUSPECT}"
    r"|(?i:\bat\s+\S+(?:\s+\S+)?\s+(?:dot|punkt)\b|ät\s|\bname\b|\bnamen\b|name's|called|heiße|heisse)"
)
_suspect: Final = re.compile(SUSPECT.replace("(?i)", "", 1), re.IGNORECASE)


class Names:
    """A list of names of people, found as whole words whatever their case."""

    def __init__(self, names: Iterable[str]) -> None:
        words = sorted({name.strip() for name in names if name.strip()}, key=lambda name: (-len(name), name))
        self._any = re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b", re.IGNORECASE) if words else None

    def places(self, text: str) -> Iterator[PersonalPart]:
        """Where a name of the list stands."""
        for found in self._any.finditer(text) if self._any is not None else ():
            yield PersonalPart(*found.span(), "name")


NO_NAMES: Final = Names(())


def without_personal_data(text: str, names: Names = NO_NAMES) -> str:
    """The text with marks in the place of personal data; the same text where there is not any."""
    found = [*names.places(text)]
    if _suspect.search(text) is not None:
        found += places(text)
    return replaced(text, found) if found else text


def places(text: str) -> Iterator[PersonalPart]:
    """Where personal data stands in a text, in no order; names only where they are introduced as such."""
    yield from labels.places(text)
    for found in _SPOKEN_EMAIL.finditer(text):
        yield PersonalPart(*found.span(), "email")
    for found in _INTRODUCED.finditer(text):
        yield PersonalPart(*found.span("name"), "name")
    for run in spoken_digits.runs(text):
        kind = _kind(text, run)
        if kind is not None:
            yield PersonalPart(run.begin, run.end, kind)


def _kind(text: str, run: spoken_digits.Run) -> PersonalKind | None:
    if not run.has_words and _ADDRESS.fullmatch(text, run.begin, run.end):
        return None
    if len(run.digits) >= CARD_DIGITS.start and holds_card(run.digits):
        return "card"
    if len(run.digits) < (SPOKEN_DIGITS_MIN if run.has_words else DIGITS_MIN):
        return None
    if not run.has_words and _DECIMAL.fullmatch(text, run.begin, run.end):
        return None
    return "phone" if is_phone(run.digits) else "digits"
