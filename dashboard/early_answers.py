"""Answers to questions of pages that are asked before the pages' scripts run, while browsers load what draws them.

An answer is given once, and only while it is young: to the page that it was asked for.
"""

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

# An answer that has been there for so long is still what the page would have been given if its script had run at once.
YOUNG_S: Final = 2.0
# So many pages are opened at once by the people who look; whatever else asks waits for its script.
_MOST: Final = 4

_Answer = TypeVar("_Answer")


class NoRoomError(Exception):
    """So many answers wait for their pages that another would not be kept: its page asks by itself."""


@dataclass(slots=True)
class _Asked:
    """`there_s` is when the answer was there: a script that runs at once waits as long for it as whoever asks ahead."""

    answer: Future[Any]
    there_s: float | None = None


class EarlyAnswers:
    """Answers by their question; those under way are waited for. Thread-safe. `clock_s` is monotonic."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._asked: dict[Hashable, _Asked] = {}
        self._lock = threading.Lock()

    def once(self, question: Hashable, ask: Callable[[], _Answer], *, is_ahead: bool) -> _Answer:
        """The answer, from `ask` where it was not asked ahead; asked ahead, it is for the page that asks next. Raises
        NoRoomError, ahead alone."""
        if is_ahead:
            return self.ask(question, ask)
        early = self.take(question)
        return ask() if early is None else cast("_Answer", early)

    def ask(self, question: Hashable, ask: Callable[[], _Answer]) -> _Answer:
        """Ask, and keep the answer for the page; if the question is being asked already, wait for that answer. What
        `ask` raises is raised, and the page asks again. Raises NoRoomError, and does not ask, where the answer would
        not be kept."""
        with self._lock:
            now_s = self._clock_s()
            self._asked = {of: each for of, each in self._asked.items() if _is_young(each, now_s)}
            asked = self._asked.get(question)
            is_new = asked is None
            if asked is None:
                if len(self._asked) >= _MOST:
                    raise NoRoomError
                asked = self._asked[question] = _Asked(Future())
        if not is_new:
            return cast("_Answer", asked.answer.result())
        try:
            answer = ask()
        except BaseException as error:
            with self._lock:
                # Whoever asks next may have more success.
                if self._asked.get(question) is asked:
                    del self._asked[question]
            asked.answer.set_exception(error)
            raise
        asked.there_s = self._clock_s()
        asked.answer.set_result(answer)
        return answer

    def take(self, question: Hashable) -> object | None:
        """The answer to a question, which is not given again, once it is there; None where the question was not asked,
        too long ago, or without success."""
        with self._lock:
            asked = self._asked.pop(question, None)
            if asked is None or not _is_young(asked, self._clock_s()):
                return None
        return None if asked.answer.exception() is not None else cast("object", asked.answer.result())


def _is_young(asked: _Asked, now_s: float) -> bool:
    return asked.there_s is None or now_s - asked.there_s <= YOUNG_S
