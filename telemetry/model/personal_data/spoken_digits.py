"""Digits as people say and dictate them, in English and German: "four one double seven", "vier eins zwo", "0170 55 55".

A run of digits may mix figures and words, with pauses, separators and fillers between them. Pure.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_UNITS: Final = {
    "zero": "0",
    "oh": "0",
    "nought": "0",
    "null": "0",
    "one": "1",
    "eins": "1",
    "ein": "1",
    "two": "2",
    "zwei": "2",
    "zwo": "2",
    "three": "3",
    "drei": "3",
    "four": "4",
    "vier": "4",
    "five": "5",
    "fünf": "5",
    "fuenf": "5",
    "six": "6",
    "sechs": "6",
    "seven": "7",
    "sieben": "7",
    "eight": "8",
    "acht": "8",
    "nine": "9",
    "niner": "9",
    "neun": "9",
}
_TEENS: Final = {
    "ten": "10",
    "eleven": "11",
    "twelve": "12",
    "thirteen": "13",
    "fourteen": "14",
    "fifteen": "15",
    "sixteen": "16",
    "seventeen": "17",
    "eighteen": "18",
    "nineteen": "19",
    "zehn": "10",
    "elf": "11",
    "zwölf": "12",
    "zwoelf": "12",
    "dreizehn": "13",
    "vierzehn": "14",
    "fünfzehn": "15",
    "sechzehn": "16",
    "siebzehn": "17",
    "achtzehn": "18",
    "neunzehn": "19",
}
_TENS: Final = {
    "twenty": "2",
    "thirty": "3",
    "forty": "4",
    "fifty": "5",
    "sixty": "6",
    "seventy": "7",
    "eighty": "8",
    "ninety": "9",
}
_GERMAN_TENS: Final = {
    "zwanzig": "2",
    "dreißig": "3",
    "dreissig": "3",
    "vierzig": "4",
    "fünfzig": "5",
    "fuenfzig": "5",
    "sechzig": "6",
    "siebzig": "7",
    "achtzig": "8",
    "neunzig": "9",
}
_GERMAN_UNITS: Final = {word: digit for word, digit in _UNITS.items() if word[0] in "evzdfsan" and digit != "0"}
_WORDS: Final = {
    **_UNITS,
    **_TEENS,
    **{tens: f"{ten}0" for tens, ten in (_TENS | _GERMAN_TENS).items()},
    **{f"{unit}und{tens}": ten + one for tens, ten in _GERMAN_TENS.items() for unit, one in _GERMAN_UNITS.items()},
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
# Three parts of a run beside one another, or six figures: without any, a text has no run that counts. For RE2 as well.
SUSPECT: Final = (
    r"(?i)[0-9](?:[^0-9A-Za-z]{0,4}[0-9]){5}|(?:(?:"
    + "|".join(sorted({*_WORDS, *_TIMES}, key=lambda word: (-len(word), word)))
    + r"|[0-9]+)(?:[^0-9A-Za-z]{0,4}(?:[a-zäöüß]{2,10}[^0-9A-Za-z]{1,4})?)){2}"
)


class Run(NamedTuple):
    """The digits that a text says from `begin` to before `end` (in characters)."""

    begin: int
    end: int
    digits: str
    has_words: bool


class _Token(NamedTuple):
    begin: int
    end: int
    word: str


def runs(text: str) -> Iterator[Run]:
    """The runs of digits in a text, in words, in figures or in both, each as long as it can be."""
    tokens = [_Token(found.start(), found.end(), found[0].lower()) for found in _TOKEN.finditer(text)]
    at = 0
    while at < len(tokens):
        run, after = _run(text, tokens, at)
        if run is not None:
            yield run
        at = max(after, at + 1)


def _run(text: str, tokens: list[_Token], at: int) -> tuple[Run | None, int]:
    """The run that begins at a token, and the first token behind it."""
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
    return (Run(begin, end, "".join(digits), has_words), behind) if digits else (None, at + 1)


def _add(digits: list[str], part: str, times: int) -> None:
    """Add what a token says: "forty" and "one" are 41."""
    if times == 1 and len(part) == 1 and part != "0" and digits and digits[-1] in _ROUND:
        digits[-1] = digits[-1][0] + part
    else:
        digits += [part] * times


_ROUND: Final = frozenset(f"{ten}0" for ten in "23456789")
