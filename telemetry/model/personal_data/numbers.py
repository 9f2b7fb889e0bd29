"""Which digits are a payment card, a telephone number or a national id. Pure.

A check digit alone is too weak: one number in ten has the right one. A card also begins as its scheme's cards do and is
as long as they are, which no time in nanoseconds since 1970 does; a telephone number is one of a country's plan.
"""

import re
from collections.abc import Iterable
from typing import Final

import phonenumbers
from stdnum import iban, luhn
from stdnum.de import idnr
from stdnum.us import ssn

# Countries whose numbers are recognized as they are dialed at home: without a country code.
REGIONS: Final = ("US", "GB", "DE", "AT", "CH")
CARD_DIGITS: Final = range(13, 20)
_TELEPHONE_DIGITS: Final = range(7, 16)
_NOT_DIGITS: Final = re.compile(r"\D+")
# How the cards of each scheme begin, and how many digits they have.
_SCHEMES: Final = (
    (re.compile(r"4"), (13, 16, 19)),
    (re.compile(r"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720|220[0-4]"), (16,)),
    (re.compile(r"3[47]"), (15,)),
    (re.compile(r"30[0-5]|3[689]"), (14, 16)),
    (re.compile(r"6011|64[4-9]|65|62|35(2[89]|[3-8])"), (16, 17, 18, 19)),
    (re.compile(r"50|5[6-8]|6[37]"), (16, 18, 19)),
)


def digits_of(text: str) -> str:
    """The digits of a text."""
    return _NOT_DIGITS.sub("", text)


def is_card(digits: str) -> bool:
    """Whether digits are the number of a payment card: a scheme's beginning and length, and the right check digit."""
    if not any(len(digits) in lengths and begins.match(digits) for begins, lengths in _SCHEMES):
        return False
    return luhn.is_valid(digits) and len(set(digits)) > 1


def holds_card(digits: str) -> bool:
    """Whether a card's number stands anywhere in a run of digits."""
    return any(
        is_card(digits[begin : begin + length]) for length in CARD_DIGITS for begin in range(len(digits) - length + 1)
    )


def is_international_phone(text: str) -> bool:
    """Whether a text that begins with a plus sign is a telephone number of a country that there is."""
    if len(digits_of(text)) not in _TELEPHONE_DIGITS:
        return False
    number = _parsed(text, None)
    return number is not None and phonenumbers.is_possible_number(number)


def is_phone(text: str, regions: Iterable[str] = REGIONS) -> bool:
    """Whether a text of digits and separators is a telephone number: with its country code, whether or not a plus sign
    is before it, or as it is dialed in one of the regions."""
    digits = digits_of(text)
    if len(digits) not in _TELEPHONE_DIGITS:
        return False
    if text.lstrip().startswith("+"):
        return is_international_phone(text)
    if digits.startswith("00"):
        return _is_valid(f"+{digits[2:]}", None)
    if _is_valid(f"+{digits}", None):
        return True
    # Without the 0 that is dialed before it, a number of these countries is any number at all.
    return any(_is_valid(digits, region) for region in regions if region == "US" or digits.startswith("0"))


def is_iban(text: str) -> bool:
    """Whether a text is an international bank account number."""
    return iban.is_valid(text)


def is_national_id(text: str) -> bool:
    """Whether a text is a social security number of the US, or a German tax identification number."""
    digits = digits_of(text)
    return (len(digits) == 9 and ssn.is_valid(digits)) or (len(digits) == 11 and idnr.is_valid(digits))


def _is_valid(text: str, region: str | None) -> bool:
    number = _parsed(text, region)
    return number is not None and phonenumbers.is_valid_number(number)


def _parsed(text: str, region: str | None) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return None
