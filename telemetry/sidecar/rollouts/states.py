"""The states of a sidecar's rollouts: each rollout is evaluated when due, and its state is answered until the next
look, over HTTP and in the gauges of `/metrics`.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, get_args

from telemetry.objectives import series
from telemetry.rollout.plan import Decision
from telemetry.rollout.verdict import CheckVerdict
from telemetry.sidecar.counts.families import Family
from telemetry.sidecar.rollouts.evaluation import (
    FRESH_GRACE_S,
    FRESH_INTERVALS,
    UNAVAILABLE,
    RolloutEvaluator,
    RolloutState,
    StageAnswered,
)

# Before the answer, an evaluation that has begun comes to its end.
ANSWER_WITHIN_S: Final = 30.0
WAITING_MAX: Final = 8
# A failed evaluation is tried again soon.
AGAIN_S: Final = 5.0
# It may have begun all the same: a second request is answered by where the rollout is.
_NO_ANSWER: Final = StageAnswered(UNAVAILABLE, "no answer came; ask where the rollout is, and ask again", "")
_TOO_MANY: Final = StageAnswered(UNAVAILABLE, "too many wait; ask again", "")

_log = logging.getLogger(__name__)


class RolloutStates:
    """The states of all rollouts, and the task that evaluates them in a separate thread; used in one event loop."""

    def __init__(
        self, evaluator: RolloutEvaluator | None, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._evaluator = evaluator
        self.names = () if evaluator is None else tuple(setting.name for setting in evaluator.settings)
        self.every_s = 0.0 if evaluator is None else evaluator.every_s
        self._monotonic_s = monotonic_s
        self._states: dict[str, tuple[RolloutState, float]] = {}
        self._due_s = dict.fromkeys(self.names, float("-inf"))
        self._woken = asyncio.Event()
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, "rollouts")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start evaluating."""
        if self.names:
            self._task = asyncio.create_task(self._evaluate_when_due())

    async def stop(self) -> None:
        """End after the evaluation in progress. Stored verdicts are durable."""
        if self._task is not None:
            self._task.cancel()
        if self._evaluator is not None:
            self._thread.submit(self._evaluator.close)
        await asyncio.to_thread(self._thread.shutdown)

    def newest(self, name: str) -> RolloutState | None:
        """The last state of a rollout, however old it is."""
        return self._states[name][0] if name in self._states else None

    def state(self, name: str) -> RolloutState | str:
        """The state of a rollout, or a sentence why there is no valid one."""
        if name not in self._states:
            return f"the rollout {name} has not been evaluated since the sidecar started; ask again"
        state, at_s = self._states[name]
        age_s = self._monotonic_s() - at_s
        if age_s > FRESH_INTERVALS * self.every_s + FRESH_GRACE_S:
            return f"the last evaluation of {name} is {age_s:.0f} s old, so nothing is known of it now"
        return state

    def keep(self, state: RolloutState) -> None:
        """Keep the result of a look at a rollout, and schedule the next one."""
        name, now_s = state.verdict.rollout, self._monotonic_s()
        self._states[name] = state, now_s
        self._due_s[name] = now_s + (self.every_s if state.is_kept else min(self.every_s, AGAIN_S))
        if not state.is_kept:
            _log.warning("%s", state.sentence)

    def next_look(self) -> tuple[str, float]:
        """The rollout whose look is due first, and the time until then, 0 or less if it is due."""
        name = min(self._due_s, key=self._due_s.__getitem__)
        return name, self._due_s[name] - self._monotonic_s()

    async def begin(self, name: str, stage: str | None, *, is_settled: bool = False) -> StageAnswered:
        """Ask whether a stage may begin; if it may, it has. See `RolloutEvaluator.begin`."""
        evaluator = self._evaluator
        if self._waiting >= WAITING_MAX or evaluator is None:
            return _TOO_MANY
        self._waiting += 1
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await self._in_thread(lambda: evaluator.begin(name, stage, is_settled=is_settled))
        except TimeoutError:
            return _NO_ANSWER
        except Exception:  # noqa: BLE001 - the other rollouts are evaluated all the same
            _log.exception("whether a stage of %s may begin is not known", name)
            return _NO_ANSWER
        finally:
            self._waiting -= 1
            self._due_s[name] = float("-inf")
            self._woken.set()

    async def _evaluate_when_due(self) -> None:
        evaluator = self._evaluator
        assert evaluator is not None  # noqa: S101 - without one, nothing is started
        while True:
            name, wait_s = self.next_look()
            if wait_s <= 0:
                self.keep(await self._in_thread(lambda name=name: evaluator.look(name)))
                continue
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


_DECISIONS: Final[tuple[Decision, ...]] = get_args(Decision)
_NS_PER_S: Final = 1e9
_BY: Final = series.ROLLOUT_LABEL


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name, "gauge", text, (_BY, *labels))


FAMILIES: Final = (
    _gauge(
        series.ROLLOUT_VERDICT, "1 for what is to be done with the rollout now; hold while nothing is known.", "verdict"
    ),
    _gauge(series.ROLLOUT_STAGE, "1 for the stage at which the rollout is.", "stage"),
    _gauge(series.ROLLOUT_SHARE, "The candidate's share of callers at this stage."),
    _gauge(series.ROLLOUT_NEEDED, "More turns of the candidate that the verdict waits for; absent where unknown."),
    _gauge(series.ROLLOUT_EVALUATED, "When a verdict was last kept; 0 before the first."),
    _gauge(series.ROLLOUT_EVERY, "How often the rollout is evaluated."),
    _gauge(
        series.ROLLOUT_BEYOND_MARGIN,
        "The candidate's share of turns beyond the control's quantile and the margin; the upper bound decides.",
        "bound",
    ),
    _gauge(series.ROLLOUT_ALLOWED, "What share may be there: a promotion needs the upper bound below it."),
    _gauge(
        series.ROLLOUT_EXCESS,
        "The candidate's share of turns beyond the control's quantile - the control's own; a roll back needs the lower "
        "bound above 0.",
        "bound",
    ),
    _gauge(
        series.ROLLOUT_DIFFERENCE,
        "Candidate - control of the primary quantile, with a 95 % interval of one look; decides nothing.",
        "bound",
    ),
    _gauge(series.ROLLOUT_MARGIN, "By how much the primary metric may be worse at most."),
)
_Samples = Mapping[tuple[str, ...], float | None]
_PRIMARY_FAMILIES: Final = (
    *(series.ROLLOUT_BEYOND_MARGIN, series.ROLLOUT_ALLOWED, series.ROLLOUT_EXCESS),
    *(series.ROLLOUT_DIFFERENCE, series.ROLLOUT_MARGIN),
)


def rollout_families(states: RolloutStates) -> Iterator[Any]:
    """The gauges with their values; none without rollouts."""
    samples = {name: _samples(states, name) for name in states.names}
    for family in FAMILIES if samples else ():
        yield family.of(
            ((name, *labels), value)
            for name, family_samples in samples.items()
            for labels, value in family_samples[family.name].items()
            if value is not None
        )


def _samples(states: RolloutStates, name: str) -> Mapping[str, _Samples]:
    known, newest = states.state(name), states.newest(name)
    state = known if isinstance(known, RolloutState) else None
    decision = "hold" if state is None else state.decision
    kept_unix_ns = None if newest is None else newest.kept_unix_ns
    return {
        **_primary_samples(None if state is None else state.primary),
        series.ROLLOUT_VERDICT: {(name,): int(name == decision) for name in _DECISIONS},
        series.ROLLOUT_STAGE: {} if newest is None else {(name,): int(name == newest.stage) for name in newest.stages},
        series.ROLLOUT_SHARE: {(): None if newest is None else newest.verdict.share},
        series.ROLLOUT_NEEDED: {(): None if state is None else state.verdict.turns_needed},
        series.ROLLOUT_EVALUATED: {(): 0 if kept_unix_ns is None else kept_unix_ns / _NS_PER_S},
        series.ROLLOUT_EVERY: {(): states.every_s},
    }


def _primary_samples(primary: CheckVerdict | None) -> Mapping[str, _Samples]:
    """The samples of the primary check; a figure that is not known has none."""
    samples: dict[str, _Samples] = {family: {} for family in _PRIMARY_FAMILIES}
    if primary is None:
        return samples
    shares = primary.shares
    figures = {"lower": primary.lower, "estimate": primary.difference, "upper": primary.upper}
    samples[series.ROLLOUT_DIFFERENCE] = {(name,): value for name, value in figures.items()}
    samples[series.ROLLOUT_MARGIN] = {(): primary.margin}
    if shares is not None:
        samples[series.ROLLOUT_BEYOND_MARGIN] = {("estimate",): shares.beyond_margin, ("upper",): shares.upper}
        samples[series.ROLLOUT_ALLOWED] = {(): shares.allowed}
        samples[series.ROLLOUT_EXCESS] = {("lower",): shares.lower, ("estimate",): shares.beyond - shares.control}
    return samples
