"""The search itself: step after step, seen while it goes on, and reported whole however it ends."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from loadtest.capacity.report import (
    Capacity,
    LoadStep,
    StepsTable,
    StepStatus,
    Stopped,
    capacity_object,
    capacity_view,
    draw,
    step_status,
    undecided_reason,
)
from loadtest.capacity.search import bounds, next_step
from loadtest.errors import EndpointUnreachable, InstrumentError, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.protocols.address import public_target
from loadtest.reports.run_report import RunReport
from loadtest.run.artifacts import keep_objectives
from loadtest.run.calibrations import citation, process_advice, wanted_processes
from loadtest.run.interruption import Interruption
from loadtest.run.job import first_turn, leave_unreachable, preflight, run
from loadtest.run.json_file import write_json
from loadtest.run.request import CheckedRun, RunRequest, check, sole_use_of
from loadtest.run.sidecars import Sidecar, destination
from loadtest.scenario.phases import MAX_USERS
from loadtest.swarm.worker import new_run_id
from telemetry.model.durations import Duration
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import EligibleTurns, Verdict, judge
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.places import CAPACITY_NAME

# Assumed duration of a turn (speaking, waiting, hearing the reply, thinking) until the first step has measured it.
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

    Steps that the generator spoiled are left out and measured again; close ones are measured longer, all of it counted.
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
    processes = request.load.processes
    asked = request.with_settings(run_id=new_run_id()).with_load(
        users=callers,
        processes=min(processes, callers) if isinstance(processes, int) else processes,
        spawn_rate=max(1.0, callers / RAMP_S),
        run_time=Duration.of_s(lasts_s),
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
        counts = [reader.objective_counts(where, objectives) for where in _filters(results)]

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
    status, sure = step_status(verdicts) if ended is None else (ended[0], True)
    with StoreReader(bench.sidecar.store) as reader:
        values = [value for where in _filters(results) for value in reader.metric_values(where, "voice_to_voice")]
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


LONGEST_STEP_S: Final = 3600.0
# An endpoint that is still busy with the step before may refuse one session: it is asked so many times.
PROBES: Final = 2


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """The request for a search. `run` says everything but the number of callers and the time."""

    run: RunRequest
    first: int
    most: int
    resolution: float
    turns_per_step: int
    longest_s: float
    rest_s: float

    def faults(self) -> list[str]:
        """Everything that cannot be used, one sentence each."""
        faults: list[str] = []
        if not 1 <= self.first <= MAX_USERS:
            faults.append(f"--from {self.first} is out of range: 1 to {MAX_USERS} callers")
        if not max(1, self.first) <= self.most <= MAX_USERS:
            faults.append(
                f"--max {self.most} is out of range: at least --from ({self.first}), at most {MAX_USERS} callers"
            )
        if not 0 < self.resolution <= 1:
            faults.append(f"--resolution {self.resolution:g} is out of range: a share such as 0.1, at most 1")
        if not 20 <= self.turns_per_step <= 1_000_000:
            faults.append(f"--turns-per-step {self.turns_per_step} is out of range: a p95 needs at least 20")
        if not 0 < self.longest_s <= LONGEST_STEP_S:
            faults.append(f"--step-time {self.longest_s:g}s is out of range: give more than 0 and at most 1h")
        return faults


def capacity(request: CapacityRequest, console: Console) -> ExitCode:
    """Search, print, draw and write. Raises UsageError, CorpusError, EndpointUnreachable, ProcessFailedError."""
    checked = _check(request)
    with sole_use_of(checked.request.out):
        return _search(request, checked, console)


def _search(request: CapacityRequest, checked: CheckedRun, console: Console) -> ExitCode:
    """Find the capacity that a checked request is about, and leave its reports. Raises as `capacity`."""
    console.print(checked.sentence, soft_wrap=not console.is_terminal)
    if checked.left_out is not None:
        console.print(checked.left_out, soft_wrap=not console.is_terminal)
    if (text := _advice(request)) is not None:
        console.print(text, style="yellow", soft_wrap=True)
    try:
        preflight(checked)
        first_turn(checked)
    except EndpointUnreachable as error:
        _write(request, checked, _capacity(request, [], "unreachable", str(error)), console)
        raise
    console.print(checked.kept_in, soft_wrap=not console.is_terminal)
    steps: list[LoadStep] = []
    with ExitStack() as stack:
        kept = keep_objectives(checked.request.out, checked.objectives_text)
        sidecar, notes = destination(checked, kept, None, stack)
        for note in notes:
            console.print(note)
        shown = stack.enter_context(_Shown(console))
        interruption = stack.enter_context(Interruption())
        bench = Bench(checked, sidecar, request.turns_per_step, request.longest_s, lambda text: shown.now(text, steps))
        try:
            stopped, reason = _climb(request, bench, shown, interruption, steps)
        except Interrupted:
            stopped, reason = "interrupted", None
    if steps and all(step.status == "refused" for step in steps):
        # A session opened before the search, or was not tried as the endpoint connects; none did since.
        stopped, reason = "unreachable", steps[-1].reason
        steps = [replace(step, status="unreachable") for step in steps]
    return _report(request, checked, _capacity(request, steps, stopped, reason), console)


def _climb(
    request: CapacityRequest, bench: Bench, shown: "_Shown", interruption: Interruption, steps: list[LoadStep]
) -> tuple[Stopped | None, str | None]:
    """Measure step after step into `steps`; what stopped it early and why. Raises Interrupted."""
    while (callers := _next(request, steps)) is not None:
        # The endpoint recovers from the step before; a failure between two runs is detected here.
        if interruption.wait(request.rest_s if steps else 0):
            raise Interrupted
        steps.append(step := measure(bench, callers))
        shown.done(steps)
        if step.status == "generator-limited":
            # Where more callers than these were measured well, a disturbance spoiled this step, not their number.
            is_limit = all(step.callers < callers for step in steps if step.met is not None)
            return ("generator" if is_limit else None), f"{callers} callers could not be judged: {step.reason}"
        if step.status != "met" and (gone := _gone(request, bench.checked, interruption)) is not None:
            # What the endpoint did while it ended says nothing of how many callers it serves.
            steps[-1] = replace(step, status="unreachable", reason=gone)
            shown.done(steps)
            return "unreachable", gone
        if step.status == "undecided":
            return None, f"{callers} callers could not be judged: open turns leave an objective undecided"
        if step.met is None:
            return None, f"too few turns at {callers} callers: give --step-time more"
    return None, None


def _gone(request: CapacityRequest, checked: CheckedRun, interruption: Interruption) -> str | None:
    """Return why not even one session opens after a step that was not met; None where one does. Raises Interrupted."""
    reason = None
    for _ in range(PROBES):
        if interruption.wait(request.rest_s):
            raise Interrupted
        try:
            preflight(checked)
        except EndpointUnreachable as error:
            reason = str(error)
        except InstrumentError:
            continue  # this machine prevented it: that says nothing about the endpoint
        else:
            return None
    return reason


def _check(request: CapacityRequest) -> CheckedRun:
    faults = request.faults()
    try:
        checked = check(request.run)
    except UsageError as error:
        raise UsageError("\n".join([*faults, str(error)])) from None
    if faults:
        raise UsageError("\n".join(faults))
    return checked


def _judged(steps: list[LoadStep]) -> dict[int, bool]:
    return {step.callers: step.met for step in steps if step.met is not None}


def _next(request: CapacityRequest, steps: list[LoadStep]) -> int | None:
    return next_step(_judged(steps), first=request.first, most=request.most, resolution=request.resolution)


def _advice(request: CapacityRequest) -> str | None:
    """Return what the calibration has against the largest step; with --processes auto each step has what it wants."""
    asked = request.run.load.processes
    return process_advice(request.most, asked if isinstance(asked, int) else wanted_processes(request.most))


def _capacity(request: CapacityRequest, steps: list[LoadStep], stopped: Stopped | None, reason: str | None) -> Capacity:
    known = bounds(_judged(steps))
    highest = max(steps, key=lambda step: step.callers, default=None)
    return Capacity(
        target=public_target(request.run.settings.host),
        steps=tuple(steps),
        met=known.met,
        missed=known.missed,
        stopped=stopped,
        reason=reason,
        calibration=None if highest is None else citation(highest.callers, highest.processes).sentence,
        advice=_advice(request),
    )


def _report(request: CapacityRequest, checked: CheckedRun, result: Capacity, console: Console) -> ExitCode:
    console.print(capacity_view(result))
    for file in draw(result, checked.objectives, request.run.out):
        _print_file("picture", file, console)
    _write(request, checked, result, console)
    return result.exit_code


def _write(request: CapacityRequest, checked: CheckedRun, result: Capacity, console: Console) -> None:
    """Write what was found, and of an endpoint that cannot be reached the reports of a run that ended so. Raises
    OutputError."""
    if result.stopped == "unreachable":
        # `--json` holds the search, not this run.
        without_json = replace(checked, request=replace(checked.request, json_file=None))
        _print_file("report", leave_unreachable(without_json, EndpointUnreachable(result.sentence)), console)
    # The folder keeps it, too: the list of runs and the dashboard read it there.
    for file in (request.run.out / CAPACITY_NAME, request.run.json_file):
        if file is not None:
            write_json(file, capacity_object(result))


def _print_file(kind: str, file: Path, console: Console) -> None:
    console.print(f"{kind}: {file}", soft_wrap=True, markup=False, highlight=False)


class _Shown:
    """The steps so far and what is being measured; redrawn on a terminal, a line for each step elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def __enter__(self) -> "_Shown":
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def now(self, text: str, steps: list[LoadStep]) -> None:
        """Show what is being measured."""
        if self._live is None:
            self._console.print(text)
        else:
            self._live.update(Group(StepsTable(steps), Spinner("dots", Text(f" {text}"))))

    def done(self, steps: list[LoadStep]) -> None:
        """A step is finished."""
        if self._live is None:
            self._console.print(f"{steps[-1].callers} callers: {steps[-1].status}")
        else:
            self._live.update(StepsTable(steps))
