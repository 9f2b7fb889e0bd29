"""`voiceprobe calibrate`: the instrument against an endpoint that knows the truth, load by load.

Every cell is a real run: Locust in its own process, the sidecar, the store. Errors come from joining the turns of the
store with the endpoint's own log.
"""

import io
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from loadtest.assistant.known_answer.plan import BEHAVIOURS
from loadtest.assistant.known_answer.speech import write_calibration_corpus
from loadtest.cli import processes
from loadtest.cli.calibrations import keep
from loadtest.cli.interruption import Interruption
from loadtest.cli.json_file import write_json
from loadtest.cli.machine import fingerprint
from loadtest.cli.request import RunRequest, check, unwritable
from loadtest.cli.run import run
from loadtest.cli.sidecars import Sidecar, start_sidecar
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.reports.calibration import (
    FaultCell,
    Rung,
    Usage,
    measure_fault,
    measure_rung,
    steady_window_perf_ns,
)
from loadtest.reports.calibration_object import Calibration, calibration_object
from loadtest.reports.calibration_picture import draw
from loadtest.reports.calibration_view import calibration_view
from loadtest.swarm.priority import ask_for_priority
from loadtest.swarm.settings import SwarmSettings
from loadtest.swarm.worker import new_run_id
from telemetry.store.answers import Filter, GeneratorPoint
from telemetry.store.reader import StoreReader
from telemetry.turns import Turn

QUICK_LOADS: Final = (1, 50, 200)
FULL_LOADS: Final = (1, 25, 100, 200, 400, 800, 1200, 1600, 2400, 3200)
DELAYS: Final = "50,200,800,2000"
READY_S: Final = 30.0
MOST_SPAWNS_A_SECOND: Final = 150
REPLY_TIMEOUT_S: Final = 5.0
THINK_S: Final = 0.3
# Every call has each delay equally often, so all last equally long.
TURNS: Final = {True: 4, False: 8}
FAULT_TURNS: Final = {True: 2, False: 4}
MOST_TURNS: Final = 100
FAULT_ROUNDS: Final = {True: 3, False: 5}  # callers of each behaviour
TIME_BUDGET_S: Final = 330.0  # after this no larger load is begun
PICTURES: Final = (".svg", ".png", ".pdf")


@dataclass(frozen=True, slots=True)
class CalibrateRequest:
    """What to calibrate. `loads` are tried in order until one is not trustworthy twice."""

    loads: tuple[int, ...]
    turns: int
    fault_rounds: int
    fault_turns: int
    quick: bool
    out: Path
    json_file: Path | None
    picture: Path | None


@dataclass(frozen=True, slots=True)
class Cell:
    """What one run left behind."""

    turns: list[Turn]
    truths: dict[str, dict[str, Any]]
    health: list[dict[str, Any]]
    points: list[GeneratorPoint]
    interrupted: bool


@dataclass(frozen=True, slots=True)
class Swarms:
    """What every cell of a calibration shares."""

    request: CalibrateRequest
    sidecar: Sidecar
    interruption: Interruption

    def look(self) -> None:
        """Raises KeyboardInterrupt when somebody has asked for the end, wherever that was noticed."""
        if self.interruption.wait(0.0):
            raise KeyboardInterrupt


def request_of(
    quick: bool,
    loads: str | None,
    turns: int | None,
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
            raise UsageError(f"--loads {loads!r} is no list of callers: give whole numbers, as in 1,50,200")
        tried = tuple(int(word) for word in words)
    return CalibrateRequest(
        loads=tried,
        turns=TURNS[quick] if turns is None else turns,
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
    if request.picture is not None and request.picture.suffix.lower() not in PICTURES:
        faults.append(f"--picture {request.picture}: name a file that ends with one of {', '.join(PICTURES)}")
    files = (request.json_file, request.picture, request.out / "x")
    faults += [fault for file in files if file is not None and (fault := unwritable(file))]
    if faults:
        raise UsageError("\n".join(faults))


def calibrate(request: CalibrateRequest, console: Console) -> ExitCode:
    """Carry it out, print, draw and store what came of it. Raises UsageError, ProcessFailedError."""
    check_calibration(request)
    started_unix_ns, began = time.time_ns(), time.monotonic()
    rungs: list[Rung] = []
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
            swarms = Swarms(request, sidecar, stack.enter_context(Interruption()))
            interrupted = _climb(swarms, console, began, rungs) or _faults(swarms, console, faults)
    except KeyboardInterrupt:
        interrupted = True
    calibration = Calibration(
        calibration_id=calibration_id,
        started_unix_ns=started_unix_ns,
        elapsed_s=time.monotonic() - began,
        quick=request.quick,
        interrupted=interrupted,
        machine=fingerprint(),
        rungs=rungs,
        faults=faults,
    )
    return conclude(request, calibration, console)


def conclude(request: CalibrateRequest, calibration: Calibration, console: Console) -> ExitCode:
    """Print, draw, store and write what was found; the exit code."""
    console.print(calibration_view(calibration))
    value = calibration_object(calibration)
    if calibration.rungs:
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
    failed = any(rung.verdict == "not trustworthy" for rung in calibration.rungs)
    return ExitCode.GENERATOR_LIMITED if failed else ExitCode.OBJECTIVE_MISSED


def _climb(swarms: Swarms, console: Console, began_s: float, rungs: list[Rung]) -> bool:
    """Try load after load; one that fails is tried once more, because a pause of the machine is no load. Whether
    somebody interrupted it."""
    request = swarms.request
    for callers in request.loads:
        for attempt in (1, 2):
            if rungs and time.monotonic() - began_s > TIME_BUDGET_S:
                console.print("the time is over: no larger load is tried")
                return False
            _say(console, f"{callers} callers{'' if attempt == 1 else ', once more'} …")
            cell = _run_cell(swarms, callers, request.turns, "plain", f"load-{callers}-{attempt}")
            if cell.interrupted:
                return True
            rung = measure_rung(callers, attempt, cell.turns, cell.truths, _usage(cell, callers))
            rungs.append(rung)
            _say(console, f"{callers} callers: {wording_of(rung)}")
            if rung.verdict in ("trustworthy", "too few turns"):
                break
        else:
            return False
    return False


def wording_of(rung: Rung) -> str:
    """A rung in a line, while the calibration goes on."""
    error = "not known" if rung.error_ns is None else f"{rung.error_ns / 1e6:.3f} ms"
    return f"{rung.verdict}, {rung.turns} turns, voice-to-voice error {error}"


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False)


def _faults(swarms: Swarms, console: Console, faults: list[FaultCell]) -> bool:
    """All misbehaviours at once, a caller or more of each; whether somebody interrupted it."""
    if not swarms.request.fault_rounds:
        return False
    callers = swarms.request.fault_rounds * len(BEHAVIOURS)
    _say(console, f"{callers} callers, misbehaviour on purpose …")
    cell = _run_cell(swarms, callers, swarms.request.fault_turns, ",".join(BEHAVIOURS), "faults")
    if not cell.interrupted:
        faults += [
            measure_fault(name, about, cell.turns, cell.truths, name != "stall") for name, about in BEHAVIOURS.items()
        ]
    return cell.interrupted


def _run_cell(swarms: Swarms, callers: int, turns: int, behaviour: str, name: str) -> Cell:
    """One run of the real swarm against a fresh endpoint."""
    swarms.look()
    request, sidecar = swarms.request, swarms.sidecar
    folder = request.out / name
    folder.mkdir(parents=True, exist_ok=True)
    truth, run_id = folder / "truth.jsonl", new_run_id()
    arguments = ["-m", "loadtest.assistant.known_answer", "--truth", str(truth)]
    arguments += ["--delays", DELAYS, "--behaviour", behaviour]
    ramp_s = max(1.0, callers / MOST_SPAWNS_A_SECOND)
    endpoint = processes.start("known-answer", arguments, folder / "logs", says_ready=True, bystander=False)
    with processes.ending(endpoint):
        url = str(processes.wait_until_ready(endpoint, READY_S)["url"])
        # The truth has to come in time as well: the endpoint asks for the processor as the generator does.
        ask_for_priority(endpoint.process.pid)
        settings = SwarmSettings(
            host=url,
            corpus=str(request.out / "corpus"),
            turns=turns,
            calls=callers,
            think=THINK_S,
            reply_timeout=REPLY_TIMEOUT_S,
            scenario_name="calibration",
            run_id=run_id,
        )
        checked = check(RunRequest(settings, callers, callers / ramp_s, None, None, folder, None))
        # A console that is no terminal and is read by nobody: the calibration says itself how it goes.
        result = run(checked, Console(file=io.StringIO()), sidecar=sidecar, watch=swarms.look)
    rows = [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]
    with StoreReader(sidecar.store) as reader:
        where = Filter(run_id=run_id)
        heard = reader.turns(where, 10_000_000, source="client")
        points = reader.generator_points(where)
    return Cell(
        heard,
        {row["response_id"]: row for row in rows if row["kind"] == "turn"},
        [row for row in rows if row["kind"] == "health"],
        points,
        result.facts.interrupted,
    )


def _usage(cell: Cell, callers: int) -> Usage:
    """CPU of generator and endpoint while all callers were on the line."""
    window = steady_window_perf_ns(cell.turns, callers)
    if window is None:
        return Usage(None, None, None)
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
    for before, point in pairwise(points):
        if before.process_id == point.process_id:
            cpu_ns += (point.cpu_ratio or 0.0) * (point.unix_ns - before.unix_ns)
            frames += (point.frames_sent or 0) - (before.frames_sent or 0)
            elapsed_ns += point.unix_ns - before.unix_ns
    return Usage(cpu_ns / elapsed_ns if elapsed_ns else None, endpoint_cpu, cpu_ns / frames if frames > 0 else None)


def _rate(
    rows: list[dict[str, Any]], value: Callable[[dict[str, Any]], int], moment: Callable[[dict[str, Any]], int]
) -> float | None:
    if len(rows) < 2:
        return None
    return (value(rows[-1]) - value(rows[0])) / (moment(rows[-1]) - moment(rows[0]))
