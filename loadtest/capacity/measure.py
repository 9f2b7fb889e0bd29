"""One step of the search: a real swarm of so many callers, measured until it says something."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console

from loadtest.capacity.report import LoadStep, StepStatus, stand, undecided_reason
from loadtest.exit_codes import ExitCode
from loadtest.reports.run_report import RunReport
from loadtest.run.job import run
from loadtest.run.request import CheckedRun
from loadtest.run.sidecars import Sidecar
from loadtest.swarm.worker import new_run_id
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import EligibleTurns, Verdict, judge
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader

# A turn takes about this long (saying it, waiting, hearing the reply, thinking) until the first step has told.
FIRST_TURN_PERIOD_S: Final = 5.0
SHORTEST_S: Final = 6.0
RAMP_S: Final = 2.0
# A step that the generator spoiled, or whose interval holds both answers, is measured again so many times.
ATTEMPTS_WHEN_INVALID: Final = 3
ATTEMPTS_WHEN_CLOSE: Final = 3
# Below 20 turns there is no p95: a step goes on beyond its time for them.
FEWEST_TURNS: Final = 20


class Interrupted(Exception):  # noqa: N818 - reads as what happened
    """Somebody stopped the search."""


@dataclass
class Bench:
    """The values that all steps share. `turn_period_s` is learnt from step to step."""

    checked: CheckedRun
    sidecar: Sidecar
    turns_wanted: int
    longest_s: float
    say: Callable[[str], None]
    turn_period_s: float = FIRST_TURN_PERIOD_S

    def lasts_s(self, callers: int, turns_had: int = 0) -> float:
        """Return how long so many callers need for the turns that are still wanted, within the bounds of one
        measurement."""
        missing = max(1, self.turns_wanted - turns_had)
        wanted_s = RAMP_S + math.ceil(missing / callers) * self.turn_period_s
        fewest_s = RAMP_S + math.ceil(max(1, FEWEST_TURNS - turns_had) / callers) * self.turn_period_s
        return max(SHORTEST_S, min(wanted_s, max(self.longest_s, fewest_s)))


def measure(bench: Bench, callers: int) -> LoadStep:
    """Measure one step. Raises Interrupted; UsageError and ProcessFailedError as a run does.

    What the generator spoiled is left out and measured anew; what is close is measured longer, all of it counted.
    """
    kept: list[RunReport] = []
    spoiled = 0
    while True:
        had = sum(result.summary.turns.eligible for result in kept)
        lasts_s = bench.lasts_s(callers, had if had < bench.turns_wanted else 0)
        bench.say(f"{callers} callers for {lasts_s:.0f} s" + (f", attempt {spoiled + len(kept) + 1}" if kept else ""))
        result = _one_run(bench, callers, lasts_s)
        if result.run_outcome.code is ExitCode.INTERRUPTED:
            raise Interrupted
        if result.run_outcome.code is ExitCode.UNREACHABLE:
            return _step(bench, callers, [result], ("refused", result.run_outcome.reason))
        if result.run_outcome.code is ExitCode.GENERATOR_LIMITED:
            spoiled += 1
            if spoiled < ATTEMPTS_WHEN_INVALID:
                continue
            return _step(bench, callers, [result], ("generator-limited", result.run_outcome.reason))
        kept.append(result)
        _learn(bench, callers, result)
        step = _step(bench, callers, kept)
        if step.sure or len(kept) >= ATTEMPTS_WHEN_CLOSE:
            return step


def _one_run(bench: Bench, callers: int, lasts_s: float) -> RunReport:
    request = bench.checked.request
    asked = replace(
        request,
        users=callers,
        asked_processes=None if request.asked_processes is None else min(request.asked_processes, callers),
        spawn_rate=max(1.0, callers / RAMP_S),
        run_time_s=lasts_s,
        settings=request.settings.replaced(run_id=new_run_id()),
    )
    # Of many runs each has its reports; the folder of the search is not that of one of them.
    reports = request.out / "steps" / f"{asked.settings.run_id}-{callers}-callers"
    return run(replace(bench.checked, request=asked), Console(quiet=True), sidecar=bench.sidecar, reports=reports)


def _learn(bench: Bench, callers: int, result: RunReport) -> None:
    turns, lasted_s = result.summary.turns.total, result.run.run_time_s or 0.0
    if turns >= callers and lasted_s > RAMP_S:
        bench.turn_period_s = min(60.0, max(1.0, callers * lasted_s / turns))


def _filters(results: list[RunReport]) -> list[Filter]:
    return [Filter(run_id=result.run.run_id) for result in results]


def _verdicts(bench: Bench, results: list[RunReport]) -> list[Verdict]:
    with StoreReader(bench.sidecar.store) as reader:
        objectives = bench.checked.objectives
        counts = [reader.objective_counts(each, objectives) for each in _filters(results)]

        def count(objective: Objective) -> EligibleTurns:
            return sum((one.count(objective) for one in counts), EligibleTurns())

        missing = sum(result.summary.loss.missing for result in results)
        dropped = sum(result.summary.starts.dropped for result in results if result.summary.starts is not None)
        return judge(objectives, count, lost=missing, prevented=dropped)


def _reason(status: StepStatus, verdicts: list[Verdict]) -> str | None:
    return undecided_reason(verdicts) if status == "generator-limited" else None


def _step(
    bench: Bench, callers: int, results: list[RunReport], ended: tuple[StepStatus, str] | None = None
) -> LoadStep:
    """The step by its objectives, unless the runs `ended` in a status of their own, for a reason."""
    verdicts = _verdicts(bench, results)
    status, sure = stand(verdicts) if ended is None else (ended[0], True)
    with StoreReader(bench.sidecar.store) as reader:
        values = [value for each in _filters(results) for value in reader.metric_values(each, "voice_to_voice")]
    eligible = sum(result.summary.turns.eligible for result in results)
    return LoadStep(
        callers=callers,
        processes=max((result.run.processes for result in results), default=1),
        run_ids=tuple(result.run.run_id for result in results),
        turns=sum(result.summary.turns.total for result in results),
        invalid=sum(result.summary.turns.invalid for result in results),
        ok_share=sum(result.summary.turns.ok for result in results) / eligible if eligible else None,
        voice_to_voice_ns=tuple(values),
        verdicts=tuple(verdicts),
        status=status,
        sure=sure,
        measured_s=sum(result.run.elapsed_s or 0.0 for result in results),
        reason=_reason(status, verdicts) if ended is None else ended[1],
    )
