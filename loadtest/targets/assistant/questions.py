"""Analysis of a question: its normal form, its slots, what in it must not leave the premises, and what it means.

Similar questions for the cache and the choice of a route go by vectors of a model of embeddings.
"""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from loadtest.targets.assistant.interfaces import Embedder, Vector

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
    written: list[str] = []
    after_tens = False
    for word in words:
        if after_tens and 0 < _ONES.get(word, 0) <= 9:
            written[-1] = str(int(written[-1]) + _ONES[word])
        elif word in _ONES or word in _TENS:
            written.append(str(_ONES.get(word, _TENS.get(word))))
        else:
            written.append(word)
        after_tens = word in _TENS
    return written


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


_MOST_QUESTIONS: Final = 10_000
# By how much a more similar class counts more: a cosine that is larger by 0.1 counts e² times as much.
_SHARPNESS: Final = 20.0


class SimilarQuestions:
    """The questions whose answers are kept, found by what they mean.

    A question is similar from a cosine of `threshold` on; with `compare_slots` only where its numbers, days and
    opposites such as on and off are the same, too.
    """

    def __init__(self, embedder: Embedder, threshold: float, *, compare_slots: bool) -> None:
        self._embedder = embedder
        self._threshold = threshold
        self._compare_slots = compare_slots
        self._kept: list[tuple[str, str]] = []  # (question, key); the vector of each has the same place
        self._vectors: np.ndarray[Any, np.dtype[np.float32]] = np.empty((0, 0), np.float32)
        self._added = 0

    async def vector(self, question: str) -> Vector | None:
        """Return the vector of a question, for `find` and `add`; None where the model does not answer."""
        return await self._embedder.embed(question)

    async def find(self, question: str, vector: Vector | None = None) -> str | None:
        """Return the key of the most similar question, or None."""
        vector = await self.vector(question) if vector is None and self._kept else vector
        if vector is None or not self._kept:
            return None
        cosines = self._vectors[: len(self._kept)] @ vector
        asked = slots(question)
        for place in np.argsort(-cosines):
            if cosines[place] < self._threshold:
                return None
            other, key = self._kept[place]
            if not self._compare_slots or slots(other) == asked:
                return key
        return None

    async def add(self, question: str, key: str, vector: Vector | None = None) -> None:
        """Remember a question whose answer is kept under a key; beyond a limit, in place of the oldest one."""
        vector = await self.vector(question) if vector is None else vector
        if vector is None:
            return
        if not self._added:
            self._vectors = np.empty((_MOST_QUESTIONS, vector.size), np.float32)
        place = self._added % _MOST_QUESTIONS
        self._vectors[place] = vector
        self._kept[place : place + 1] = [(question, key)]
        self._added += 1


class ExampleRouter:
    """Decides by examples whether a question can stay here: those that a small model answers, and those that it
    cannot.

    By `similarity`, a question stays that is at least so similar to an example of the first kind. By `confidence`, one
    of which a classifier is so sure that it is of the first kind: a softmax over the largest cosine with either kind.
    """

    def __init__(self, embedder: Embedder, by: str, threshold: float, local: Sequence[str], cloud: Sequence[str]):
        self._embedder = embedder
        self._by = by
        self._threshold = threshold
        self._examples = (local, cloud)
        self._vectors: list[list[Vector]] = []

    async def stays(self, question: str) -> bool:
        """Return whether the local model answers; a question without a vector goes to the cloud."""
        if not self._vectors:
            embedded = [[await self._embedder.embed(text) for text in texts] for texts in self._examples]
            self._vectors = [[vector for vector in vectors if vector is not None] for vectors in embedded]
        vector = await self._embedder.embed(question)
        if vector is None or not all(self._vectors):
            return False
        local, cloud = (max(float(vector @ other) for other in vectors) for vectors in self._vectors)
        if self._by == "similarity":
            return local >= self._threshold
        return 1 / (1 + math.exp(_SHARPNESS * (cloud - local))) >= self._threshold
