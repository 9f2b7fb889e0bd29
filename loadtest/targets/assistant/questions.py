"""Analysis of a question's words: its normal form, its slots, and what in it must not leave the premises. Pure."""

import re
import unicodedata
from typing import Final

_NOT_WORDS: Final = re.compile(r"[^\w\s']|_")
_BELOW_TWENTY: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_ONES: Final = {word: number for number, word in enumerate(_BELOW_TWENTY.split())}
_TENS_WORDS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS: Final = {word: 20 + 10 * place for place, word in enumerate(_TENS_WORDS.split())}
_DAYS: Final = "monday tuesday wednesday thursday friday saturday sunday today tomorrow yesterday tonight weekend"
_MONTHS: Final = "january february march april may june july august september october november december"
_OPPOSITES: Final = "on off up down open close closed lock unlock start stop first last next not don't never"
_ROOMS: Final = "kitchen bedroom bathroom hall garage upstairs downstairs living dining office garden"
_SLOT_WORDS: Final = frozenset(f"{_DAYS} {_MONTHS} {_OPPOSITES} {_ROOMS} am pm morning evening afternoon".split())


def normalize(question: str) -> str:
    """Normalize case, punctuation and spacing of a question; the words stay significant."""
    plain = unicodedata.normalize("NFKC", question).casefold()
    return " ".join(_NOT_WORDS.sub(" ", plain).split())


def normalize_times(question: str) -> str:
    """Normalize numbers and times of day as well: "half past six", "six thirty" and "6:30" are the same."""
    words = _with_digits(normalize(question).split())
    text = f" {' '.join(words)} "
    text = re.sub(r" (a|p) m ", r" \1m ", text)
    text = re.sub(r" (half|quarter) past (\d+) ", lambda at: f" {at[2]} {'30' if at[1] == 'half' else '15'} ", text)
    text = re.sub(r" quarter to (\d+) ", lambda at: f" {(int(at[1]) - 2) % 12 + 1} 45 ", text)
    text = re.sub(r" (\d+) (?:00|o'clock)(?= )", r" \1", text)
    return " ".join(text.split())


def _with_digits(words: list[str]) -> list[str]:
    found: list[str] = []
    after_tens = False
    for word in words:
        if after_tens and 0 < _ONES.get(word, 0) <= 9:
            found[-1] = str(int(found[-1]) + _ONES[word])
        elif word in _ONES or word in _TENS:
            found.append(str(_ONES.get(word, _TENS.get(word))))
        else:
            found.append(word)
        after_tens = word in _TENS
    return found


def slots(question: str) -> frozenset[str]:
    """The words of a question that change its answer however similar the rest is: numbers, days, months, rooms,
    opposites and denials."""
    words = normalize_times(question).split()
    return frozenset(word for word in words if word.isdigit() or word in _SLOT_WORDS)


_NUMBER_WORD: Final = "|".join((*_ONES, *_TENS, "oh"))
_MARKED: Final = (
    # Four digits or more, written or said one by one: numbers of cards, accounts and telephones, and codes.
    re.compile(r"\d(?:[\s,.-]*\d){3,}"),
    re.compile(rf"\b(?:{_NUMBER_WORD})\b(?:[\s,-]+(?:{_NUMBER_WORD})\b){{3,}}", re.IGNORECASE),
    re.compile(r"\S+@\S+\.\w+|\b\w+(?:\s+dot\s+\w+)*\s+at\s+\w+(?:\s+dot\s+\w+)+", re.IGNORECASE),
    re.compile(
        r"(?i:\bmy name is|\bi am called|\bthis is|\bname of|\bspeaking to|\bname's)\s+[A-Z][\w'-]+(?:\s+[A-Z][\w'-]+)*"
    ),
    re.compile(r"\bborn\s+(?:on|in)\b[^.?!]*", re.IGNORECASE),
    re.compile(
        rf"\b(?:\d+|(?:{_NUMBER_WORD}|hundred|and)(?:[\s-]+(?:{_NUMBER_WORD}|hundred|and))*)\s+(?:\w+\s+){{1,2}}"
        r"(?:street|road|lane|avenue|drive|court|square|way)\b",
        re.IGNORECASE,
    ),
    re.compile(r"\b(?:password|passcode|pin|code) is\b[^.?!]*", re.IGNORECASE),
)


def marked_items(question: str) -> list[str]:
    """Return what in a question must not leave the premises: names with how they are introduced, numbers of accounts
    and cards, addresses, dates of birth, codes. Found by patterns of English; what fits none is not found."""
    return [match.group().strip() for pattern in _MARKED for match in pattern.finditer(question)]
