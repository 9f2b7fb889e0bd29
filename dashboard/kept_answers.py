"""Answers of a store that are kept for as long as it stays the same, and those that were asked for ahead of a page."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, TypeVar, cast

from dashboard.early_answers import EarlyAnswers
from telemetry.model.formatting import NS_PER_S
from telemetry.store.answers import Summary
from telemetry.store.run_state import RECENT_S

_KEPT_ANSWERS: Final = 64

_Answer = TypeVar("_Answer")


class KeptAnswers:
    """Answers by the state of the store and the question. Thread-safe. `wall_clock_ns` gives Unix ns."""

    def __init__(self, state: Callable[[], Hashable], wall_clock_ns: Callable[[], int]) -> None:
        self._state = state
        self._wall_clock_ns = wall_clock_ns
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()
        self._early = EarlyAnswers()

    def kept(self, question: Hashable, ask: Callable[[], _Answer], *, is_ahead: bool) -> _Answer:
        """The answer, from `ask` where the store has changed since it was given. Asked ahead, it is the answer to the
        page that asks next, also where the store has changed by then."""
        return self.once(question, lambda: self._kept_answer(question, ask), is_ahead=is_ahead)

    def once(self, question: Hashable, ask: Callable[[], _Answer], *, is_ahead: bool) -> _Answer:
        """The answer from `ask`, which is not kept; asked ahead, it is for the page that asks next."""
        return self._early.once(question, ask, is_ahead=is_ahead)

    def _kept_answer(self, question: Hashable, ask: Callable[[], _Answer]) -> _Answer:
        key = (self._state(), question)
        with self._lock:
            kept, asked_unix_ns = self._kept.get(key, (None, 0))
            if kept is not None and not _is_outlived(kept, asked_unix_ns, self._wall_clock_ns()):
                self._kept.move_to_end(key)
                return cast("_Answer", kept)
            asked_unix_ns = self._wall_clock_ns()
        answer = ask()
        with self._lock:
            self._kept[key] = answer, asked_unix_ns
            while len(self._kept) > _KEPT_ANSWERS:
                self._kept.popitem(last=False)
        return answer


def _is_outlived(kept: Any, asked_unix_ns: int, now_unix_ns: int) -> bool:
    """Whether a process that was at work when the answer was given counts as lost by now: of all that an answer says of
    a store, that alone changes though the store stays the same."""
    summary: Summary | None = getattr(kept, "summary", None)
    if summary is None or summary.heard_unix_ns is None:
        return False
    lost_unix_ns = summary.heard_unix_ns + RECENT_S * NS_PER_S
    return asked_unix_ns <= lost_unix_ns < now_unix_ns
