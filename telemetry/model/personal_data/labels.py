"""Personal data in values that are labels: ids, names of models and tools, states. Pure.

A label is no prose: hex ids, versions, dates and times stand in it, and must stay what they are. So only what is
personal data beyond doubt is found: a card's number that stands by itself, a telephone number with its plus sign, an
e-mail address, a bank account, a social security number in its own form.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from telemetry.model.personal_data.numbers import (
    digits_of,
    is_card,
    is_iban,
    is_international_phone,
    is_national_id,
    is_phone,
)
from telemetry.model.personal_data.replacing import PersonalPart, replaced

# A value in which nothing of this is found holds no personal data. RE2 reads it as well as `re` does.
SUSPECT: Final = (
    r"@|%40|\+[ (]?[0-9]|%2[Bb][0-9]|[0-9][0-9]-[0-9][0-9]-[0-9]|[0-9](?:[ -]?[0-9]){12}"
    r"|[A-Z][A-Z][0-9][0-9] ?[0-9A-Z]|(?:tel|sips?|callto):[0-9]"
)
# Of values up to this length the last ones are remembered: senders repeat them.
_REMEMBERED_CHARS: Final = 200
_REMEMBERED: Final = 20_000
_suspect: Final = re.compile(SUSPECT)
_EMAIL: Final = re.compile(r"[^\s@<>\"',;:()\[\]{}|\\/=]{1,64}(?:@|%40)(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])")
_PHONE: Final = re.compile(
    r"(?:(?<![0-9+])(?:\+|%2[Bb])|(?<![a-z])(?:tel|sips?|callto):\+?)[ (]?[0-9](?:[ ()./-]{0,2}[0-9]){5,14}(?![0-9])"
)
# A card by itself: in one piece, or in the groups in which it is printed.
_CARD: Final = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9]{13,19}|[0-9]{4}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{1,7}|[0-9]{4}([ -])[0-9]{6}\2[0-9]{4,5})"
    r"(?![0-9A-Za-z])"
)
_SSN: Final = re.compile(r"(?<![0-9A-Za-z-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?![0-9A-Za-z-])")
_IBAN: Final = re.compile(r"(?<![0-9A-Za-z])[A-Z]{2}[0-9]{2}(?: ?[0-9A-Z]{4}){2,7}(?: ?[0-9A-Z]{1,3})?(?![0-9A-Za-z])")
_PERSONAL_ID: Final = re.compile(r"[0-9(][0-9 ()/-]{5,22}[0-9]")
_SCHEME: Final = re.compile(r"(?:tel|sips?|callto):", re.IGNORECASE)


def without_personal_data(label: str) -> str:
    """The label with marks in the place of personal data; the same text where there is not any."""
    if _suspect.search(label) is None:
        return label
    return _remembered(label) if len(label) <= _REMEMBERED_CHARS else replaced(label, places(label))


def identifies_person(value: str) -> bool:
    """Whether an id is, or holds, a telephone number, an e-mail address or other personal data."""
    return _is_remembered(value) if len(value) <= _REMEMBERED_CHARS else any(places(value))


@lru_cache(_REMEMBERED)
def _remembered(label: str) -> str:
    return replaced(label, places(label))


@lru_cache(_REMEMBERED)
def _is_remembered(value: str) -> bool:
    if _suspect.search(value) is not None and any(places(value)):
        return True
    bare = _SCHEME.sub("", value.strip(), count=1)
    return _PERSONAL_ID.fullmatch(bare) is not None and is_phone(bare)


def places(label: str) -> Iterator[PersonalPart]:
    """Where personal data stands in a label, in no order."""
    for found in _EMAIL.finditer(label):
        yield PersonalPart(*found.span(), "email")
    for found in _PHONE.finditer(label):
        if is_international_phone(f"+{digits_of(found[0].replace('%2', ''))}"):
            yield PersonalPart(*found.span(), "phone")
    for found in _CARD.finditer(label):
        if is_card(digits_of(found[0])):
            yield PersonalPart(*found.span(), "card")
    for found in _SSN.finditer(label):
        if is_national_id(found[0]):
            yield PersonalPart(*found.span(), "national_id")
    for found in _IBAN.finditer(label):
        if is_iban(found[0]):
            yield PersonalPart(*found.span(), "iban")
