"""`voiceprobe calibrate`: the instrument against an endpoint that knows the truth, load by load.

Every cell is a real run: Locust in its own process, the sidecar, the store. Errors come from joining the turns of the
store with the endpoint's own log.
"""

import io
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

from rich.console import Console

from corpora.output_paths import unwritable
from loadtest.calibration.annotation_errors import AnnotationError, annotation_errors
from loadtest.calibration.calibration import (
    CalibrationStep,
    FaultCell,
    ProcessorUsage,
    measure_fault,
    measure_step,
    more_processes,
    steady_window_perf_ns,
)
from loadtest.calibration.json_object import Calibration, calibration_object
from loadtest.calibration.view import calibration_view, draw
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run import processes
from loadtest.run.calibrations import calibrations_folder, fingerprint, keep
from loadtest.run.interruption import Interruption
from loadtest.run.job import run
from loadtest.run.json_file import write_json
from loadtest.run.request import RunRequest, check
from loadtest.run.sidecars import Sidecar, start_sidecar
from loadtest.scenario.behavior import parse_think
from loadtest.scenario.sections import MAX_PROCESSES, RunLoad
from loadtest.scenario.settings import SwarmSettings
from loadtest.swarm.cores import most_processes, usable_cores
from loadtest.swarm.priority import ask_for_priority
from loadtest.swarm.worker import new_run_id
from loadtest.targets.ground_truth.plan import BEHAVIORS
from loadtest.targets.ground_truth.speech import write_calibration_corpus
from telemetry.model.durations import Duration
from telemetry.model.formatting import count, fine_milliseconds, number
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.questions.timelines import GeneratorPoint
from telemetry.store.reader import StoreReader

TURNS_OF_AN_ANSWER: Final = 10_000
QUICK_LOADS: Final = (1, 50, 200)
FULL_LOADS: Final = (1, 25, 100, 200, 400, 800, 1200, 1600, 2400, 3200)
DELAYS: Final = "50ms,200ms,800ms,2s"
READY_S: Final = 120.0
MOST_SPAWNS_A_SECOND: Final = 150
REPLY_TIMEOUT: Final = Duration.parse("5s")
THINK_S: Final = 0.3
# Every call has each delay equally often, so all last equally long.
TURNS: Final = {True: 4, False: 8}
FAULT_TURNS: Final = {True: 2, False: 4}
MOST_TURNS: Final = 100
FAULT_ROUNDS: Final = {True: 3, False: 5}  # callers of each behavior
TIME_BUDGET_S: Final = 420.0  # after this no larger load is begun
PICTURES: Final = (".svg", ".png", ".pdf")


@dataclass(frozen=True, slots=True)
class CalibrateRequest:
    """The request for a calibration. `loads` are tried in order until one is not trustworthy with any number of
    processes."""

    loads: tuple[int, ...]
    turns: int
    most_processes: int
    fault_rounds: int
    fault_turns: int
    quick: bool
    out: Path
    json_file: Path | None
    picture: Path | None


@dataclass(frozen=True, slots=True)
class Cell:
    """The files of one run."""

    turns: list[Turn]
    truths: dict[str, dict[str, Any]]
    health: list[dict[str, Any]]
    points: list[GeneratorPoint]
    interrupted: bool


@dataclass(frozen=True, slots=True)
class Swarms:
    """The values that every cell of a calibration shares."""

    request: CalibrateRequest
    annotation: Mapping[str, AnnotationError]  # of each utterance's clip
    sidecar: Sidecar
    interruption: Interruption

    def look(self) -> None:
        """Raise KeyboardInterrupt where an interruption was asked for."""
        if self.interruption.wait(0.0):
            raise KeyboardInterrupt


def request_of(
    *,
    quick: bool,
    loads: str | None,
    turns: int | None,
    most: int | None,
    faults: bool,
    out: Path,
    json_file: Path | None,
    picture: Path | None,
) -> CalibrateRequest:
    """The request that the flags make. Raises UsageError."""
    tried = QUICK_LOADS if quick else FULL_LOADS
    if loads is not None:
        words = [word.strip() for word in loads.split(",")]
        if not all(word.isdigit() for word in words):
            raise UsageError(f"--loads {loads!r} is not a list of callers: give whole numbers, as in 1,50,200")
        tried = tuple(int(word) for word in words)
    return CalibrateRequest(
        loads=tried,
        turns=TURNS[quick] if turns is None else turns,
        most_processes=most_processes(usable_cores()) if most is None else most,
        fault_rounds=FAULT_ROUNDS[quick] if faults else 0,
        fault_turns=FAULT_TURNS[quick],
        quick=quick,
        out=out,
        json_file=json_file,
        picture=picture,
    )


def check_calibration(request: CalibrateRequest) -> None:
    """Everything that can be wrong with a request, at once. Raises UsageError."""
    faults: list[str] = []
    if (
        not request.loads
        or any(load < 1 for load in request.loads)
        or list(request.loads) != sorted(set(request.loads))
    ):
        faults.append("--loads must be whole numbers of callers in rising order, as in 1,50,200")
    if not 1 <= request.turns <= MOST_TURNS:
        faults.append(f"--turns {request.turns} is out of range: each caller has 1 to {MOST_TURNS} turns")
    if not 1 <= request.most_processes <= MAX_PROCESSES:
        faults.append(f"--processes {request.most_processes} is out of range: 1 to {MAX_PROCESSES}")
    if request.most_processes > 1 and not hasattr(os, "fork"):
        faults.append(f"--processes {request.most_processes}: this system cannot fork; give 1")
    if request.picture is not None and request.picture.suffix.lower() not in PICTURES:
        faults.append(f"--picture {request.picture}: name a file that ends with one of {', '.join(PICTURES)}")
    files = (request.json_file, request.picture, request.out / "x", calibrations_folder() / "x")
    faults += [fault for file in files if file is not None and (fault := unwritable(file))]
    if faults:
        raise UsageError("\n".join(faults))


def calibrate(request: CalibrateRequest, console: Console) -> ExitCode:
    """Carry it out, print, draw and store what came of it. Raises UsageError, ProcessFailedError."""
    check_calibration(request)
    started_unix_ns, began = time.time_ns(), time.monotonic()
    steps: list[CalibrationStep] = []
    faults: list[FaultCell] = []
    interrupted = False
    calibration_id = new_run_id()
    request.out.mkdir(parents=True, exist_ok=True)
    write_calibration_corpus(request.out / "corpus")
    console.print(f"everything of this calibration is kept in {request.out}", soft_wrap=True)
    try:
        with ExitStack() as stack:
            child, sidecar = start_sidecar(request.out / "store", request.out / "logs", slo=None)
            stack.enter_context(processes.ending(child))
            annotation = annotation_errors(request.out / "corpus")
            swarms = Swarms(request, annotation, sidecar, stack.enter_context(Interruption()))
            interrupted = _climb(swarms, console, began, steps) or _faults(swarms, console, faults)
    except KeyboardInterrupt:
        interrupted = True
    calibration = Calibration(
        calibration_id=calibration_id,
        started_unix_ns=started_unix_ns,
        elapsed_s=time.monotonic() - began,
        quick=request.quick,
        interrupted=interrupted,
        machine=fingerprint(),
        steps=steps,
        faults=faults,
    )
    return conclude(request, calibration, console)


def conclude(request: CalibrateRequest, calibration: Calibration, console: Console) -> ExitCode:
    """Print, draw, store and write what was found; the exit code."""
    console.print(calibration_view(calibration))
    value = calibration_object(calibration)
    if calibration.steps:
        picture = request.picture or request.out / "calibration.svg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        draw(calibration, picture)
        console.print(f"picture: {picture}", soft_wrap=True)
        console.print(f"later runs cite {keep(value)}", soft_wrap=True)
    if request.json_file is not None:
        write_json(request.json_file, value)
    if calibration.interrupted:
        return ExitCode.INTERRUPTED
    if calibration.ceiling is not None:
        return ExitCode.OK
    failed = any(step.verdict == "not trustworthy" for step in calibration.steps)
    return ExitCode.GENERATOR_LIMITED if failed else ExitCode.UNDECIDED


def _climb(swarms: Swarms, console: Console, began_s: float, steps: list[CalibrationStep]) -> bool:
    """Try load after load with as few processes as it takes; whether somebody interrupted it."""
    request, count = swarms.request, 1
    for callers in request.loads:
        while True:
            how = _try(swarms, console, began_s, steps, (callers, count))
            if how != "not trusted":
                break
            more = more_processes(steps, request.most_processes)
            if more is None:
                return False
            count = more
        if how != "trusted":
            return how == "interrupted"
    return False


def _try(
    swarms: Swarms, console: Console, began_s: float, steps: list[CalibrationStep], load: tuple[int, int]
) -> Literal["trusted", "not trusted", "interrupted", "time over"]:
    """Try so many callers with so many processes into `steps`; one that fails is tried once more, because a pause of
    the machine is no load."""
    callers, count = load
    with_ = "" if count == 1 else f" with {count} processes"
    for attempt in (1, 2):
        if steps and time.monotonic() - began_s > TIME_BUDGET_S:
            console.print("the time is over: no larger load is tried")
            return "time over"
        _say(console, f"{callers} callers{with_}{'' if attempt == 1 else ', once more'} …")
        name = f"load-{callers}-{attempt}" if count == 1 else f"load-{callers}-{attempt}-of-{count}"
        cell = _run_cell(swarms, load, swarms.request.turns, "plain", name)
        if cell.interrupted:
            return "interrupted"
        usage = _usage(cell, callers)
        steps.append(
            step := measure_step(
                callers, attempt, cell.turns, cell.truths, usage, processes=count, annotation=swarms.annotation
            )
        )
        _say(console, f"{callers} callers{with_}: {sentence_of(step)}")
        if step.verdict in ("trustworthy", "too few turns"):
            return "trusted"
    return "not trusted"


def sentence_of(step: CalibrationStep) -> str:
    """A step in a line, while the calibration goes on."""
    intervals = step.intervals
    right = f", {number(intervals.within)} of {count(intervals.n, 'interval')} right" if intervals.n else ""
    error = f"voice-to-voice error {fine_milliseconds(step.error_ns)}"
    return f"{step.verdict}, {count(step.turns, 'turn')}, {number(step.invalid)} invalid{right}, {error}"


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False)


def _faults(swarms: Swarms, console: Console, faults: list[FaultCell]) -> bool:
    """All misbehaviors at once, a caller or more of each; whether somebody interrupted it."""
    if not swarms.request.fault_rounds:
        return False
    callers = swarms.request.fault_rounds * len(BEHAVIORS)
    _say(console, f"{callers} callers, misbehavior on purpose …")
    cell = _run_cell(swarms, (callers, 1), swarms.request.fault_turns, ",".join(BEHAVIORS), "faults")
    if not cell.interrupted:
        faults += [
            measure_fault(name, about, cell.turns, cell.truths, answered=name != "stall", annotation=swarms.annotation)
            for name, about in BEHAVIORS.items()
        ]
    return cell.interrupted


def _run_cell(swarms: Swarms, load: tuple[int, int], turns: int, behavior: str, name: str) -> Cell:
    """One run of the real swarm, so many callers in so many processes, against a fresh endpoint."""
    swarms.look()
    callers, count = load
    request, sidecar = swarms.request, swarms.sidecar
    folder = request.out / name
    folder.mkdir(parents=True, exist_ok=True)
    truth, run_id = folder / "truth.jsonl", new_run_id()
    arguments = ["-m", "loadtest.targets.ground_truth", "--truth", str(truth)]
    arguments += ["--delays", DELAYS, "--behavior", behavior]
    ramp_s = max(1.0, callers / MOST_SPAWNS_A_SECOND)
    endpoint = processes.start("ground-truth", arguments, folder / "logs", says_ready=True, bystander=False)
    with processes.ending(endpoint):
        url = str(processes.wait_until_ready(endpoint, READY_S)["url"])
        # The truth has to come in time as well: the endpoint asks for the processor as the generator does.
        ask_for_priority(endpoint.process.pid)
        settings = SwarmSettings(
            host=url,
            corpus=str(request.out / "corpus"),
            turns=turns,
            calls=callers,
            think=parse_think(THINK_S),
            reply_timeout=REPLY_TIMEOUT,
            scenario_name="calibration",
            run_id=run_id,
        )
        shared = RunLoad(users=callers, spawn_rate=callers / ramp_s, processes=count)
        checked = check(RunRequest(settings, shared, None, folder, None))
        # The console is discarded: the calibration reports its own progress.
        result = run(checked, Console(file=io.StringIO()), sidecar=sidecar, watch=swarms.look)
    rows = [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]
    with StoreReader(sidecar.store) as reader:
        where = Filter(run_id=run_id)
        heard = _turns_of_callers(reader, where)
        points = reader.generator_points(where)
    return Cell(
        heard,
        {row["response_id"]: row for row in rows if row["kind"] == "turn"},
        [row for row in rows if row["kind"] == "health"],
        points,
        result.run.interrupted,
    )


def _turns_of_callers(reader: StoreReader, where: Filter) -> list[Turn]:
    """All turns that callers heard, in portions of what one answer may hold."""
    turns: list[Turn] = []
    while some := reader.turns(where, TURNS_OF_AN_ANSWER, len(turns), source="client"):
        turns += some
    return turns


def _usage(cell: Cell, callers: int) -> ProcessorUsage:
    """CPU of generator and endpoint while all callers were on the line."""
    window = steady_window_perf_ns(cell.turns, callers)
    if window is None:
        return ProcessorUsage(None, None, None)
    since, until = window
    offset_ns = cell.turns[0].started_unix_ns - cell.turns[0].started_perf_ns
    health = [row for row in cell.health if since <= row["perf_ns"] <= until]
    endpoint_cpu = _rate(health, lambda row: row["cpu_ns"], lambda row: row["perf_ns"])
    points = [
        point
        for point in cell.points
        if since <= point.unix_ns - offset_ns <= until and point.cpu_ratio is not None and point.frames_sent is not None
    ]
    cpu_ns, frames, elapsed_ns = 0.0, 0, 0
    for before, point in pairwise(sorted(points, key=lambda point: (point.process_id, point.unix_ns))):
        if before.process_id == point.process_id:
            cpu_ns += (point.cpu_ratio or 0.0) * (point.unix_ns - before.unix_ns)
            frames += (point.frames_sent or 0) - (before.frames_sent or 0)
            elapsed_ns += point.unix_ns - before.unix_ns
    return ProcessorUsage(
        cpu_ns / elapsed_ns if elapsed_ns else None, endpoint_cpu, cpu_ns / frames if frames > 0 else None
    )


def _rate(
    rows: list[dict[str, Any]], value: Callable[[dict[str, Any]], int], moment: Callable[[dict[str, Any]], int]
) -> float | None:
    if len(rows) < 2:
        return None
    return (value(rows[-1]) - value(rows[0])) / (moment(rows[-1]) - moment(rows[0]))
