"""Personal data in texts and labels, the text without it, and pseudonyms. Pure.

Allowlists say which names of attributes are stored (telemetry.store.redaction). What they do not cover is looked for
here, by two rules:

- A **label** (an id, the name of a model or a tool, a state) is no prose: hex ids, versions, dates and times must stay
  what they are. So only what is personal data beyond doubt is found: a card's number by itself, a telephone
  number with its plus sign, an e-mail address, a bank account, a social security number in its own form.
- A **text** is what somebody said, wrote or was answered, where it is kept because that was asked for. It is better to
  replace too much: a dictated number is not always recognized digit by digit, so that the check digit of a
  card is wrong. Any run of digits that is long enough for an account is replaced, spoken (in English and German) or
  written; the address and port of a host stay.

A check digit alone is too weak: one number in ten has the right one. A card also begins as its scheme's cards do and is
as long as they are, which no time in nanoseconds since 1970 does; a telephone number is one of a country's plan.

A pseudonym is the same for the same value and key, so that what one person did can be joined and counted. Without the
key nobody can find out whose it is, nor try all telephone numbers until one fits.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import phonenumbers
from stdnum import iban, luhn
from stdnum.de import idnr
from stdnum.us import ssn

PersonalKind = Literal["card", "phone", "email", "national_id", "iban", "digits", "name"]

_OPENING: Final = "[redacted:"


class PersonalPart(NamedTuple):
    """A part of a text, from `begin` to before `end` (in characters), that is personal data of a kind."""

    begin: int
    end: int
    kind: PersonalKind


def mark(kind: PersonalKind) -> str:
    """The mark that replaces personal data of a kind."""
    return f"{_OPENING}{kind}]"


def replaced(text: str, places: Iterable[PersonalPart]) -> str:
    """The text with a mark in each place; of overlapping places, the first mark covers all."""
    pieces: list[str] = []
    kept_to = 0
    covered: PersonalPart | None = None
    for place in sorted(places):
        if covered is not None and place.begin < kept_to:
            kept_to = max(kept_to, place.end)
            continue
        pieces += (text[kept_to : place.begin], mark(place.kind))
        covered, kept_to = place, place.end
    return "".join((*pieces, text[kept_to:]))


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
    """Return whether digits are the number of a payment card: a scheme's beginning and length, and the right check
    digit."""
    if not any(len(digits) in lengths and begins.match(digits) for begins, lengths in _SCHEMES):
        return False
    return luhn.is_valid(digits) and len(set(digits)) > 1


def holds_card(digits: str) -> bool:
    """Return whether a run of digits contains a card number."""
    return any(
        is_card(digits[begin : begin + length]) for length in CARD_DIGITS for begin in range(len(digits) - length + 1)
    )


def is_international_phone(text: str) -> bool:
    """Return whether a text that begins with a plus sign is a telephone number of an existing country."""
    if len(digits_of(text)) not in _TELEPHONE_DIGITS:
        return False
    number = _parsed(text, None)
    return number is not None and phonenumbers.is_possible_number(number)


def is_phone(text: str, regions: Iterable[str] = REGIONS) -> bool:
    """Return whether a text of digits and separators is a telephone number: with its country code, whether or not a
    plus sign is before it, or as it is dialed in one of the regions."""
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
    """Return whether a text is an international bank account number."""
    return iban.is_valid(text)


def is_national_id(text: str) -> bool:
    """Return whether a text is a social security number of the US, or a German tax identification number."""
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


KEY_BYTES: Final = 32
_PSEUDONYM: Final = re.compile(r"pseudonym-[0-9a-f]{32}")
# Prefixes of the same number or address in different senders' ids.
_SCHEME: Final = re.compile(r"(?:tel|sips?|mailto|callto):", re.IGNORECASE)
_PHONE_SPELLING: Final = re.compile(r"\+?[0-9 ()./-]+")
_SEPARATORS: Final = re.compile(r"[ ()./-]")


def is_pseudonym(value: str) -> bool:
    """Return whether a value is a pseudonym already."""
    return _PSEUDONYM.fullmatch(value) is not None


def pseudonym(value: str, key: bytes) -> str:
    """The pseudonym of a value; of a pseudonym itself. Spellings of one telephone number or e-mail address share it."""
    if is_pseudonym(value):
        return value
    bare = _SCHEME.sub("", value.strip(), count=1)
    if _PHONE_SPELLING.fullmatch(bare) is not None:
        bare = _SEPARATORS.sub("", bare).removeprefix("+")
    elif "@" in bare:
        bare = bare.lower()
    return f"pseudonym-{hmac.new(key, bare.encode('utf-8', 'surrogatepass'), hashlib.sha256).hexdigest()[:32]}"


# A value in which nothing of this is found holds no personal data.
_LABEL_SUSPECT: Final = (
    r"@|%40|\+[ (]?[0-9]|%2[Bb][0-9]|[0-9][0-9]-[0-9][0-9]-[0-9]|[0-9](?:[ -]?[0-9]){12}"
    r"|[A-Z][A-Z][0-9][0-9] ?[0-9A-Z]|(?:tel|sips?|callto):[0-9]"
)
# Of values up to this length the last ones are remembered: senders repeat them.
_REMEMBERED_CHARS: Final = 200
_REMEMBERED: Final = 20_000
_suspect_label: Final = re.compile(_LABEL_SUSPECT)
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


def label_without_personal_data(label: str) -> str:
    """The label with marks in place of personal data; the same text if it has none."""
    if _suspect_label.search(label) is None:
        return label
    return _remembered(label) if len(label) <= _REMEMBERED_CHARS else replaced(label, label_places(label))


def identifies_person(value: str) -> bool:
    """Return whether an id is, or holds, a telephone number, an e-mail address or other personal data."""
    return _is_remembered(value) if len(value) <= _REMEMBERED_CHARS else any(label_places(value))


@lru_cache(_REMEMBERED)
def _remembered(label: str) -> str:
    return replaced(label, label_places(label))


@lru_cache(_REMEMBERED)
def _is_remembered(value: str) -> bool:
    if _suspect_label.search(value) is not None and any(label_places(value)):
        return True
    bare = _SCHEME.sub("", value.strip(), count=1)
    return _PERSONAL_ID.fullmatch(bare) is not None and is_phone(bare)


def label_places(label: str) -> Iterator[PersonalPart]:
    """Yield the places of personal data in a label, in no order."""
    for match in _EMAIL.finditer(label):
        yield PersonalPart(*match.span(), "email")
    for match in _PHONE.finditer(label):
        if is_international_phone(f"+{digits_of(match[0].replace('%2', ''))}"):
            yield PersonalPart(*match.span(), "phone")
    for match in _CARD.finditer(label):
        if is_card(digits_of(match[0])):
            yield PersonalPart(*match.span(), "card")
    for match in _SSN.finditer(label):
        if is_national_id(match[0]):
            yield PersonalPart(*match.span(), "national_id")
    for match in _IBAN.finditer(label):
        if is_iban(match[0]):
            yield PersonalPart(*match.span(), "iban")


# Words of each digit from 0, of 10 to 19, and of 20 to 90, in English and in German.
_DIGITS: Final = (
    *("zero oh nought null", "one eins ein", "two zwei zwo", "three drei", "four vier"),
    *("five fünf fuenf", "six sechs", "seven sieben", "eight acht", "nine niner neun"),
)
_TEENS: Final = (
    *("ten zehn", "eleven elf", "twelve zwölf zwoelf", "thirteen dreizehn", "fourteen vierzehn"),
    *("fifteen fünfzehn", "sixteen sechzehn", "seventeen siebzehn", "eighteen achtzehn", "nineteen neunzehn"),
)
_ENGLISH_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_GERMAN_TENS: Final = (
    *("zwanzig", "dreißig dreissig", "vierzig", "fünfzig fuenfzig", "sechzig", "siebzig", "achtzig", "neunzig"),
)


def _numbered(spellings: tuple[str, ...], first: int) -> dict[str, str]:
    """Numbers by their spellings: each text lists the spellings of one number, counted from `first`."""
    return {word: f"{first + place}" for place, words in enumerate(spellings) for word in words.split()}


_WORDS: Final = {
    **_numbered(_DIGITS, 0),
    **_numbered(_TEENS, 10),
    **{tens: f"{ten}0" for table in (_ENGLISH_TENS, _GERMAN_TENS) for tens, ten in _numbered(table, 2).items()},
    **{
        f"{unit}und{tens}": ten + one
        for tens, ten in _numbered(_GERMAN_TENS, 2).items()
        for unit, one in _numbered(_DIGITS, 0).items()
        if one != "0"
    },
}
_TIMES: Final = {"double": 2, "doppel": 2, "zweimal": 2, "triple": 3, "treble": 3, "dreimal": 3, "quadruple": 4}
_FILLERS: Final = frozenset(
    (
        *("and", "then", "dash", "minus", "hyphen", "slash", "space", "um", "uh", "er", "hundred"),
        *("und", "dann", "strich", "bindestrich", "äh", "ähm", "mal", "hundert"),
    )
)
# Between two parts of a run: a pause, however it was written.
_BETWEEN: Final = re.compile(r"(?:[\s.\-–—/()_…:;]|,(?=\D)){0,4}")
_TOKEN: Final = re.compile(r"[0-9]+|[^\W\d_]+")
# Three parts of a run next to one another, or six figures: without any, a text has no run that counts.
_RUN_SUSPECT: Final = (
    r"(?i)[0-9](?:[^0-9A-Za-z]{0,4}[0-9]){5}|(?:(?:"
    + "|".join(sorted({*_WORDS, *_TIMES}, key=lambda word: (-len(word), word)))
    + r"|[0-9]+)(?:[^0-9A-Za-z]{0,4}(?:[a-zäöüß]{2,10}[^0-9A-Za-z]{1,4})?)){2}"
)


class DigitRun(NamedTuple):
    """The digits spelled in a text from `begin` to before `end` (in characters)."""

    begin: int
    end: int
    digits: str
    has_words: bool


class _Token(NamedTuple):
    begin: int
    end: int
    word: str


def digit_runs(text: str) -> Iterator[DigitRun]:
    """The runs of digits in a text, in words, in figures or in both, each as long as possible."""
    tokens = [_Token(match.start(), match.end(), match[0].lower()) for match in _TOKEN.finditer(text)]
    at = 0
    while at < len(tokens):
        run, after = _run(text, tokens, at)
        if run is not None:
            yield run
        at = max(after, at + 1)


def _run(text: str, tokens: list[_Token], at: int) -> tuple[DigitRun | None, int]:
    """The run that begins at a token, and the first token after it."""
    digits: list[str] = []
    times, has_words = 1, False
    begin = end = tokens[at].begin
    behind = at
    for place in range(at, len(tokens)):
        token = tokens[place]
        if place > at and _BETWEEN.fullmatch(text, tokens[place - 1].end, token.begin) is None:
            break
        if token.word in _TIMES:
            times, has_words = _TIMES[token.word], True
            continue
        part = token.word if token.word[0].isdecimal() else _WORDS.get(token.word)
        if part is None:
            if token.word in _FILLERS and digits:
                continue
            break
        has_words = has_words or not token.word[0].isdecimal()
        _add(digits, part, times)
        times, end, behind = 1, token.end, place + 1
    return (DigitRun(begin, end, "".join(digits), has_words), behind) if digits else (None, at + 1)


def _add(digits: list[str], part: str, times: int) -> None:
    """Add the number of a token: "forty" and "one" are 41."""
    if times == 1 and len(part) == 1 and part != "0" and digits and digits[-1] in _ROUND:
        digits[-1] = digits[-1][0] + part
    else:
        digits += [part] * times


_ROUND: Final = frozenset(f"{ten}0" for ten in "23456789")


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
# A text in which nothing of this is found, and no name of the list, is as it may be kept.
_TEXT_SUSPECT: Final = (
    rf"(?:{_LABEL_SUSPECT})|{_RUN_SUSPECT}"
    r"|(?i:\bat\s+\S+(?:\s+\S+)?\s+(?:dot|punkt)\b|ät\s|\bname\b|\bnamen\b|name's|called|heiße|heisse)"
)
_suspect_text: Final = re.compile(_TEXT_SUSPECT.replace("(?i)", "", 1), re.IGNORECASE)


class Names:
    """A list of names of people, found as whole words whatever their case."""

    def __init__(self, names: Iterable[str]) -> None:
        words = sorted({name.strip() for name in names if name.strip()}, key=lambda name: (-len(name), name))
        self._any = re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b", re.IGNORECASE) if words else None

    def places(self, text: str) -> Iterator[PersonalPart]:
        """Yield the places of names in the list."""
        for match in self._any.finditer(text) if self._any is not None else ():
            yield PersonalPart(*match.span(), "name")


NO_NAMES: Final = Names(())


def text_without_personal_data(text: str, names: Names = NO_NAMES) -> str:
    """The text with marks in place of personal data; the same text if it has none."""
    parts = [*names.places(text)]
    if _suspect_text.search(text) is not None:
        parts += text_places(text)
    return replaced(text, parts) if parts else text


def text_places(text: str) -> Iterator[PersonalPart]:
    """Yield the places of personal data in a text, in no order; names only where they are introduced as such."""
    yield from label_places(text)
    for match in _SPOKEN_EMAIL.finditer(text):
        yield PersonalPart(*match.span(), "email")
    for match in _INTRODUCED.finditer(text):
        yield PersonalPart(*match.span("name"), "name")
    for run in digit_runs(text):
        kind = _kind(text, run)
        if kind is not None:
            yield PersonalPart(run.begin, run.end, kind)


def _kind(text: str, run: DigitRun) -> PersonalKind | None:
    if not run.has_words and _ADDRESS.fullmatch(text, run.begin, run.end):
        return None
    if len(run.digits) >= CARD_DIGITS.start and holds_card(run.digits):
        return "card"
    if len(run.digits) < (SPOKEN_DIGITS_MIN if run.has_words else DIGITS_MIN):
        return None
    if not run.has_words and _DECIMAL.fullmatch(text, run.begin, run.end):
        return None
    return "phone" if is_phone(run.digits) else "digits"
