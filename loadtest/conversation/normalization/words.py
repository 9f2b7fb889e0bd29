"""Words of a text: one form of letters, marks and digits, and what counts as a word in each script. Pure."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Final

from loadtest.conversation.normalization import numbers

# Written without spaces between words: Thai, Lao, Burmese, Khmer, Tai, kana, Bopomofo and Han.
_UNSPACED: Final = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19FF), (0x1A20, 0x1AAF)),
    *((0x3005, 0x3007), (0x3021, 0x3029), (0x3031, 0x3035), (0x3041, 0x30FF), (0x3100, 0x312F), (0x31A0, 0x31BF)),
    *((0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0xF900, 0xFAFF)),
    *((0x1AFF0, 0x1B16F), (0x20000, 0x3FFFF)),
)
# Vowel points, accents of the cantor and other marks that most texts of the script leave out: Hebrew, Arabic, Syriac.
# The vowel signs of the scripts of India and its neighbors are no such marks: a word without them is another word.
_OPTIONAL_MARKS: Final = (
    *((0x0591, 0x05BD), (0x05BF, 0x05BF), (0x05C1, 0x05C2), (0x05C4, 0x05C5), (0x05C7, 0x05C7)),
    *((0x0610, 0x061A), (0x0640, 0x0640), (0x064B, 0x065F), (0x0670, 0x0670), (0x06D6, 0x06DC), (0x06DF, 0x06E4)),
    *((0x06E7, 0x06E8), (0x06EA, 0x06ED), (0x0711, 0x0711), (0x0730, 0x074A), (0x0898, 0x089F), (0x08CA, 0x08E1)),
    *((0x08E3, 0x08FF), (0x10EFD, 0x10EFF)),
)
# They choose a glyph and are neither letter nor mark: combining grapheme joiner, variation selectors.
_INVISIBLE_MARKS: Final = ((0x034F, 0x034F), (0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
_ZERO_WIDTH_SPACE: Final = "\u200b"
_APOSTROPHES: Final = "'`\u00b4\u02b9\u02bb\u02bc\u02bd\u02be\u02bf\u055a\u05f3\u2018\u2019\u201b\u2032\ua78c"
_QUOTES_IN_HEBREW: Final = '"\u05f4\u201c\u201d\u201e\u2033'
_ANY_APOSTROPHE: Final = re.compile(f"[{re.escape(_APOSTROPHES)}]")
# Compatibility forms have the vowel AM of Thai and Lao in two parts; one keystroke writes it.
_VOWEL_AM: Final = re.compile("\u0e4d([\u0e48-\u0e4b]?)\u0e32|\u0ecd([\u0ec8-\u0ecb]?)\u0eb2")
_DOTTED_CAPITALS: Final = frozenset({"tr", "az"})
# One letter on the keyboards of two languages: Arabic kaf and yeh, and those of Persian; and what the print leaves out.
_SAME_LETTERS: Final = str.maketrans({"\u0643": "\u06a9", "\u064a": "\u06cc", "\u0671": "\u0627", "\u0451": "\u0435"})
_STRESS: Final = re.compile("(?<=[\u0400-\u04ff])[\u0300\u0301]")


def folded(text: str, language: str) -> str:
    """The text in lower case and compatibility form, with ASCII digits and without the marks that most texts leave out.

    `language` is the primary subtag: of Turkish and Azeri, whose I has a lower case of its own.
    """
    text = unicodedata.normalize("NFKC", _ANY_APOSTROPHE.sub("'", text))
    if language in _DOTTED_CAPITALS:
        text = text.replace("I", "\u0131").replace("\u0130", "i")
    text = unicodedata.normalize("NFKC", text.casefold()).replace("i\u0307", "i")
    if language not in _DOTTED_CAPITALS:
        text = text.replace("\u0131", "i")
    text = _STRESS.sub("", text).translate(_SAME_LETTERS)
    text = _VOWEL_AM.sub(_composed_am, text)
    return "".join(map(_written, text))


def spaced(text: str) -> str:
    """Words without their apostrophes, with single spaces for all else that is neither letter, mark nor digit.

    A point between two digits stays, as the sign of a decimal fraction.
    """
    kept: list[str] = []
    for before, char, after in zip(chain(" ", text), text, chain(text[1:], " "), strict=False):
        if is_word_character(char) or (char == "." and before.isdecimal() and after.isdecimal()):
            kept.append(char)
        elif not _is_inside_word(before, char, after):
            kept.append(" ")
    return " ".join(word for word in "".join(kept).split() if any(map(_is_letter_or_digit, word)))


def is_unspaced(char: str) -> bool:
    """Return whether a character belongs to a script without spaces between words, where each character counts."""
    return _is_in(_UNSPACED, char)


@lru_cache(4096)
def is_word_character(char: str) -> bool:
    """Return whether a character is a letter, a digit, or a mark on one of them."""
    return unicodedata.category(char)[0] in "LNM"


def _is_letter_or_digit(char: str) -> bool:
    return unicodedata.category(char)[0] in "LN"


def _is_inside_word(before: str, char: str, after: str) -> bool:
    if not is_word_character(before) or not is_word_character(after):
        return False
    return char == "'" or (
        char in _QUOTES_IN_HEBREW and all("\u05d0" <= neighbor <= "\u05ea" for neighbor in (before, after))
    )


def _composed_am(match: re.Match[str]) -> str:
    is_thai = match.group(1) is not None
    return f"{match.group(1)}\u0e33" if is_thai else f"{match.group(2)}\u0eb3"


@lru_cache(4096)
def _written(char: str) -> str:
    """Return what a character is written as: a digit in ASCII, a mark or sign that is left out as nothing."""
    if char.isascii():
        return char
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category == "Cf":
        return " " if char == _ZERO_WIDTH_SPACE else ""
    is_left_out = category == "Me" or _is_in(_OPTIONAL_MARKS, char) or _is_in(_INVISIBLE_MARKS, char)
    return "" if is_left_out else char


def _is_in(ranges: Sequence[tuple[int, int]], char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in ranges)


UNDETERMINED: Final = "und"
_UNSPACED_LANGUAGES: Final = frozenset(["zh", "cmn", "yue", "wuu", "nan", "ja", "th", "lo", "km", "my"])


def primary_language(tag: str) -> str:
    """The primary subtag of a BCP 47 tag: en of en-US."""
    return tag.replace("_", "-").split("-", 1)[0].lower()


def normalized(text: str, language: str) -> str:
    """The words of a text, separated by single spaces; `language` is a primary subtag."""
    text = numbers.written_numbers(folded(text, language), language)
    return numbers.spoken_numbers(spaced(text), language)


def units(words: str, *, by_character: bool) -> list[str]:
    """The units that errors are counted in: normalized words, each character of an unspaced script for itself.

    `by_character`: so are the digits of a number, as they are in a text of such a script.
    """
    tokens: list[str] = []
    for word in words.split():
        for is_one_each, group in groupby(word, is_unspaced):
            run = "".join(group)
            if is_one_each or (by_character and run.replace(".", "").isdecimal()):
                tokens += run
            else:
                tokens.append(run)
    return tokens


def counts_characters(words: str, language: str) -> bool:
    """Return whether normalized words are those of a script without spaces, so that errors are counted by character."""
    return language in _UNSPACED_LANGUAGES or any(map(is_unspaced, words))


def cut_numbers(expected: Sequence[str], heard: Sequence[str]) -> Iterator[list[str]]:
    """Yield what was heard, its numbers cut as those of the reference: "1984" as "19 84", "5 5 5" as "555".

    First the numbers of both that have the same digits; then also those left over, in their order, if both texts have
    as many of them.
    """
    wanted = [run for is_number, run in _runs(expected) if is_number]
    runs = list(_runs(heard))
    left: list[int] = []
    for place, (is_number, run) in enumerate(runs):
        same = next((other for other in wanted if is_number and "".join(other) == "".join(run)), None)
        if same is not None:
            wanted.remove(same)
            runs[place] = (True, same)
        elif is_number:
            left.append(place)
    yield [word for _, run in runs for word in run]
    if left and len(left) == len(wanted):
        for place, run in zip(left, wanted, strict=True):
            runs[place] = (True, _cut("".join(runs[place][1]), run))
        yield [word for _, run in runs for word in run]


def _runs(words: Sequence[str]) -> Iterator[tuple[bool, list[str]]]:
    return ((is_number, list(run)) for is_number, run in groupby(words, str.isdecimal))


def _cut(digits: str, like: Sequence[str]) -> list[str]:
    """Cut digits at the lengths of another run of numbers; what is over is one piece."""
    if len(like) == 1:
        return [digits]
    pieces: list[str] = []
    for word in like:
        pieces.append(digits[: len(word)])
        digits = digits[len(word) :]
    return [piece for piece in (*pieces, digits) if piece]
