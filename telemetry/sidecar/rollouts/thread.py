"""The thread of a sidecar that evaluates its rollouts, one after the other as they are due, and what it last found."""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from telemetry.sidecar.rollouts.evaluation import (
    FRESH_GRACE_S,
    FRESH_INTERVALS,
    UNAVAILABLE,
    RolloutEvaluator,
    RolloutState,
    StageAnswered,
    StageAsked,
)

# Before the answer, an evaluation that has begun comes to its end.
ANSWER_WITHIN_S: Final = 30.0
WAITING_MAX: Final = 8
# What could not be evaluated is tried again soon.
AGAIN_S: Final = 5.0
# It may have begun all the same: who asks again is answered by where the rollout is.
_NO_ANSWER: Final = "no answer came; ask where the rollout is, and ask again"

_log = logging.getLogger(__name__)
_Asked = tuple[StageAsked, "Future[StageAnswered]"]


@dataclass(slots=True)
class LookSchedule:
    """Every rollout at once in the beginning, then every `every_s` after its last look."""

    names: Sequence[str]
    every_s: float
    _due: dict[str, float] = field(default_factory=dict[str, float])

    def wait_s(self, now_s: float) -> float:
        """Return how long nothing is due; 0 where something is."""
        return max(0.0, self._due.get(self.next(), now_s) - now_s)

    def next(self) -> str:
        """The rollout whose look is due first."""
        return min(self.names, key=lambda name: self._due.get(name, float("-inf")))

    def looked(self, name: str, now_s: float, *, is_kept: bool) -> None:
        """Note that a look ended now; `is_kept` says whether its verdict could be kept."""
        self._due[name] = now_s + (self.every_s if is_kept else min(self.every_s, AGAIN_S))


class RolloutThread:
    """The states of all rollouts, and the thread that makes them; asked in an event loop. Without rollouts there is no
    thread."""

    def __init__(
        self, evaluator: RolloutEvaluator | None, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._evaluator = evaluator
        self.names = () if evaluator is None else tuple(each.name for each in evaluator.settings)
        self.every_s = 0.0 if evaluator is None else evaluator.every_s
        self.fresh_s = FRESH_INTERVALS * self.every_s + FRESH_GRACE_S
        self._monotonic_s = monotonic_s
        self._states: dict[str, tuple[RolloutState, float]] = {}
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._waiting = 0
        self._thread = threading.Thread(target=self._run, name="rollouts", daemon=True)

    def start(self) -> None:
        """Begin to evaluate."""
        if self.names:
            self._thread.start()

    async def stop(self) -> None:
        """End after the evaluation that has begun. What was kept is durable."""
        self._asked.put(None)
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)
        if self._evaluator is not None:
            self._evaluator.close()

    def newest(self, name: str) -> RolloutState | None:
        """The last state of a rollout, however old it is."""
        found = self._states.get(name)
        return None if found is None else found[0]

    def state(self, name: str) -> RolloutState | str:
        """The state of a rollout, or a sentence why there is none that counts."""
        found = self._states.get(name)
        if found is None:
            return f"the rollout {name} has not been evaluated since the sidecar started; ask again"
        age_s = self._monotonic_s() - found[1]
        if age_s > self.fresh_s:
            return f"the last evaluation of {name} is {age_s:.0f} s old, so nothing is known of it now"
        return found[0]

    def keep(self, state: RolloutState) -> None:
        """Keep what a look at a rollout found."""
        self._states[state.verdict.rollout] = state, self._monotonic_s()

    async def begin(self, name: str, stage: str | None, *, is_settled: bool = False) -> StageAnswered:
        """Ask whether a stage may begin; if it may, it has. See `StageAsked`."""
        if self._waiting >= WAITING_MAX:
            return StageAnswered(UNAVAILABLE, "too many wait; ask again", "")
        answered: Future[StageAnswered] = Future()
        self._waiting += 1
        try:
            self._asked.put((StageAsked(name, stage, is_settled), answered))
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await asyncio.wrap_future(answered)
        except TimeoutError:
            return StageAnswered(UNAVAILABLE, _NO_ANSWER, "")
        finally:
            self._waiting -= 1

    def _run(self) -> None:
        evaluator = self._evaluator
        assert evaluator is not None  # noqa: S101 - without one, nothing is started
        schedule = LookSchedule(self.names, self.every_s)
        while True:
            try:
                asked = self._asked.get(timeout=schedule.wait_s(self._monotonic_s()))
            except queue.Empty:
                self._look(evaluator, schedule, schedule.next())
                continue
            if asked is None:
                return
            message, answered = asked
            if answered.set_running_or_notify_cancel():
                try:
                    answered.set_result(evaluator.begin(message))
                except Exception:  # noqa: BLE001 - the other rollouts are evaluated all the same
                    _log.exception("whether a stage of %s may begin is not known", message.rollout)
                    answered.set_result(StageAnswered(UNAVAILABLE, _NO_ANSWER, ""))
                self._look(evaluator, schedule, message.rollout)

    def _look(self, evaluator: RolloutEvaluator, schedule: LookSchedule, name: str) -> None:
        state = evaluator.look(name)
        schedule.looked(name, self._monotonic_s(), is_kept=state.is_kept)
        if not state.is_kept:
            _log.warning("%s", state.sentence)
        self.keep(state)
