"""The search itself: rung after rung, seen while it goes on, and reported whole however it ends."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from loadtest.caller.address import public_target
from loadtest.cli.calibrations import citation
from loadtest.cli.capacity.measure import Bench, Interrupted, measure
from loadtest.cli.capacity.picture import draw
from loadtest.cli.capacity.search import bounds, next_rung
from loadtest.cli.interruption import Interruption
from loadtest.cli.json_file import write_json
from loadtest.cli.request import MAX_USERS, CheckedRun, RunRequest, check
from loadtest.cli.run import preflight
from loadtest.cli.sidecars import destination
from loadtest.errors import EndpointUnreachable, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.reports.capacity import Capacity, Rung, Stopped, capacity_object, capacity_view, rungs_table

LONGEST_RUNG_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """What the search was asked for. `run` says everything but the number of callers and the time."""

    run: RunRequest
    first: int
    most: int
    resolution: float
    turns_per_rung: int
    longest_s: float
    rest_s: float

    def faults(self) -> list[str]:
        """Everything that cannot be used, one sentence each."""
        found: list[str] = []
        if not 1 <= self.first <= MAX_USERS:
            found.append(f"--from {self.first} is out of range: 1 to {MAX_USERS} callers")
        if not max(1, self.first) <= self.most <= MAX_USERS:
            found.append(
                f"--max {self.most} is out of range: at least --from ({self.first}), at most {MAX_USERS} callers"
            )
        if not 0 < self.resolution <= 1:
            found.append(f"--resolution {self.resolution:g} is out of range: a share such as 0.1, at most 1")
        if not 20 <= self.turns_per_rung <= 1_000_000:
            found.append(f"--turns-per-step {self.turns_per_rung} is out of range: a p95 needs at least 20")
        if not 0 < self.longest_s <= LONGEST_RUNG_S:
            found.append(f"--step-time {self.longest_s:g} s is out of range: up to {LONGEST_RUNG_S:g} s")
        return found


def capacity(request: CapacityRequest, console: Console) -> ExitCode:
    """Search, print, draw and write. Raises UsageError, CorpusError, EndpointUnreachable, ProcessFailedError."""
    checked = _check(request)
    console.print(checked.sentence, soft_wrap=True)
    preflight(checked)
    rungs: list[Rung] = []
    with ExitStack() as stack:
        sidecar, notes = destination(checked, None, stack)
        for note in notes:
            console.print(note)
        shown = stack.enter_context(_Shown(console))
        interruption = stack.enter_context(Interruption())
        bench = Bench(checked, sidecar, request.turns_per_rung, request.longest_s, lambda text: shown.now(text, rungs))
        try:
            stopped, reason = _climb(request, bench, shown, interruption, rungs)
        except Interrupted:
            stopped, reason = "interrupted", None
    if len(rungs) == 1 and rungs[0].standing == "refused" and rungs[0].reason is not None:
        raise EndpointUnreachable(rungs[0].reason)
    return _report(request, checked, _found(request, rungs, stopped, reason), console)


def _climb(
    request: CapacityRequest, bench: Bench, shown: "_Shown", interruption: Interruption, rungs: list[Rung]
) -> tuple[Stopped | None, str | None]:
    """Measure rung after rung into `rungs`; what stopped it early and why. Raises Interrupted."""
    while (callers := _next(request, rungs)) is not None:
        # The endpoint recovers from the rung before; what came between two runs is noticed here.
        if interruption.wait(request.rest_s if rungs else 0):
            raise Interrupted
        rungs.append(rung := measure(bench, callers))
        shown.done(rungs)
        if rung.standing == "generator-limited":
            # Where more callers than these were measured well, a disturbance spoiled this rung, not their number.
            is_limit = all(each.callers < callers for each in rungs if each.met is not None)
            return ("generator" if is_limit else None), f"{callers} callers could not be judged: {rung.reason}"
        if rung.met is None:
            return None, f"too few turns at {callers} callers: give --step-time more"
    return None, None


def _check(request: CapacityRequest) -> CheckedRun:
    faults = request.faults()
    try:
        checked = check(request.run)
    except UsageError as error:
        raise UsageError("\n".join([*faults, str(error)])) from None
    if faults:
        raise UsageError("\n".join(faults))
    return checked


def _judged(rungs: list[Rung]) -> dict[int, bool]:
    return {rung.callers: rung.met for rung in rungs if rung.met is not None}


def _next(request: CapacityRequest, rungs: list[Rung]) -> int | None:
    return next_rung(_judged(rungs), first=request.first, most=request.most, resolution=request.resolution)


def _found(request: CapacityRequest, rungs: list[Rung], stopped: Stopped | None, reason: str | None) -> Capacity:
    known = bounds(_judged(rungs))
    return Capacity(
        target=public_target(request.run.settings.host),
        rungs=tuple(rungs),
        met=known.met,
        missed=known.missed,
        most=request.most,
        stopped=stopped,
        reason=reason,
        calibration=citation(max(rung.callers for rung in rungs)).sentence if rungs else None,
    )


def _report(request: CapacityRequest, checked: CheckedRun, found: Capacity, console: Console) -> ExitCode:
    console.print(capacity_view(found))
    for file in draw(found, checked.objectives, request.run.out):
        console.print(f"picture: {file}", soft_wrap=True)
    if request.run.json_file is not None:
        write_json(request.run.json_file, capacity_object(found))
    return found.exit_code


class _Shown:
    """The rungs so far and what is being measured; redrawn on a terminal, a line for each step elsewhere."""

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

    def now(self, text: str, rungs: list[Rung]) -> None:
        """What is being measured."""
        if self._live is None:
            self._console.print(text)
        else:
            self._live.update(Group(rungs_table(rungs), Spinner("dots", Text(f" {text}"))))

    def done(self, rungs: list[Rung]) -> None:
        """A rung is finished."""
        if self._live is None:
            self._console.print(f"{rungs[-1].callers} callers: {rungs[-1].standing}")
        else:
            self._live.update(rungs_table(rungs))
