"""Splitting into words: a word in scripts that are written with spaces, a character in others. Pure."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from loadtest.conversation.normalization import numbers, scripts

UNDETERMINED: Final = "und"
_UNSPACED_LANGUAGES: Final = frozenset(["zh", "cmn", "yue", "wuu", "nan", "ja", "th", "lo", "km", "my"])


def primary_language(tag: str) -> str:
    """The primary subtag of a BCP 47 tag: en of en-US."""
    return tag.replace("_", "-").split("-", 1)[0].lower()


def normalized(text: str, language: str) -> str:
    """The words of a text, separated by single spaces; `language` is a primary subtag."""
    text = numbers.written_numbers(scripts.folded(text, language), language)
    return numbers.spoken_numbers(scripts.spaced(text), language)


def units(words: str, *, by_character: bool) -> list[str]:
    """The units that errors are counted in: normalized words, each character of an unspaced script for itself.

    `by_character`: so are the digits of a number, as they are in a text of such a script.
    """
    found: list[str] = []
    for word in words.split():
        for is_unspaced, group in groupby(word, scripts.is_unspaced):
            run = "".join(group)
            if is_unspaced or (by_character and run.replace(".", "").isdecimal()):
                found += run
            else:
                found.append(run)
    return found


def counts_characters(words: str, language: str) -> bool:
    """Return whether normalized words are those of a script without spaces, so that errors are counted by character."""
    return language in _UNSPACED_LANGUAGES or any(map(scripts.is_unspaced, words))


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
