"""One run of the real generator against an endpoint that knows the truth, held up in one of several ways."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from corpora.sources.authoring import Draft, write_corpus
from loadtest.targets.ground_truth.speech import write_calibration_corpus
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.benchmarks.stalls.comparison import Comparison, Stall, Truth, compare, ground_truth, independent_truth

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[2]
ENDPOINTS: Final = ("independent", "ground-truth")
MODES: Final[dict[str, str]] = {
    "none": "nothing",
    "stopped": "SIGSTOP of the generator",
    "interpreter": "a thread that holds the interpreter",
    "hog": "a process that keeps each core busy",
    "hog-normal": "likewise, the generator without real-time priority",
}
DELAYS: Final = "60ms,130ms,250ms,400ms"
RATE_HZ: Final = 24_000
ENDPOINT_PRIORITY: Final = 2  # above that of the generator, which is 1
READY_S: Final = 60.0
END_S: Final = 90.0


@dataclass(frozen=True, slots=True)
class Load:
    """What every run has in common."""

    users: int
    run_time_s: int
    lengths_ms: tuple[float, float]
    gap_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class RunFolder:
    """What one run left behind."""

    path: Path
    endpoint: str
    mode: str

    @property
    def truths(self) -> list[Truth]:
        """What the endpoint knows."""
        rows = _rows(self.path / "truth.jsonl")
        if self.endpoint == "independent":
            return [independent_truth(row) for row in rows]
        return [ground_truth(row) for row in rows if row["kind"] == "turn"]

    @property
    def turns(self) -> list[Turn]:
        """The client's turns, from the run's store."""
        with StoreReader(self.path / "run" / "store") as reader:
            return reader.turns(Filter(), 10_000_000, source="client")

    @property
    def stalls(self) -> list[Stall]:
        """All that was logged."""
        rows = [row for name in ("generator", "stopped") for row in _rows(self.path / f"{name}.jsonl")]
        return [Stall(row["begin_ns"], row["end_ns"], row["kind"]) for row in rows if "begin_ns" in row]

    def compared(self, *, is_shared_machine: bool) -> Comparison:
        """Its comparison. What an independent thread of the generator overslept counts as a stall beside a hog; on a
        machine that others keep busy, in every run."""
        counts = is_shared_machine or self.mode.startswith("hog")
        stalls = [stall for stall in self.stalls if counts or stall.kind != "probe"]
        return compare(self.turns, {truth.response_id: truth for truth in self.truths}, stalls)


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def write_bursts(folder: Path, seed: int) -> None:
    """A corpus of short bursts of constant magnitude, each with silence around it."""
    draw = np.random.default_rng(seed)
    drafts: list[Draft] = []
    for number in range(16):
        lead, speech, tail = (int(draw.integers(*span)) for span in ((2_000, 4_000), (6_000, 12_000), (1_500, 3_000)))
        pcm = np.zeros(lead + speech + tail, np.int16)
        pcm[lead : lead + speech] = (draw.integers(0, 2, speech) * 2 - 1) * 5000
        drafts.append(_draft(number, pcm))
    write_corpus(folder, "bursts", "generated", drafts)


def _draft(number: int, pcm: "np.ndarray[Any, np.dtype[np.int16]]") -> Draft:
    return Draft(
        id=f"burst-{number}",
        text=f"burst {number}",
        speaker="generator",
        language="en-US",
        domain="calibration",
        license="CC0-1.0",
        source="generated from random signs by the stall bench",
        pcm=pcm,
        rate_hz=RATE_HZ,
    )


def carry_out(folder: Path, endpoint: str, mode: str, load: Load) -> RunFolder:
    """One run into a folder of its own. Raises RuntimeError where a process does not do its part."""
    folder.mkdir(parents=True)
    write = write_calibration_corpus if endpoint == "ground-truth" else lambda path: write_bursts(path, load.seed)
    write(folder / "corpus")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(_endpoint(folder, endpoint, load.seed))
        variables = _variables(folder, mode, load)
        run = stack.enter_context(_child(_run_command(folder, url, load), folder / "run.log", variables))
        _await_turns(folder, run)
        for command in _injectors(folder, mode, load):
            stack.enter_context(_child(command, folder / "injector.log"))
        (folder / "inject").touch()
        run.wait(load.run_time_s + END_S)
    (folder / "run.json").write_text(json.dumps({"endpoint": endpoint, "mode": mode, "code": run.returncode}))
    return RunFolder(folder, endpoint, mode)


def folders_in(path: Path) -> list[RunFolder]:
    """The runs that an earlier call left in a folder."""
    found = sorted(path.glob("*/run.json"))
    kept = [(file.parent, json.loads(file.read_text())) for file in found]
    return [RunFolder(folder, about["endpoint"], about["mode"]) for folder, about in kept]


def _run_command(folder: Path, url: str, load: Load) -> list[str]:
    command = [sys.executable, "-m", "loadtest.cli.main", "run", url, "--protocol", "openai-realtime"]
    command += ["--corpus", str(folder / "corpus"), "--users", str(load.users), "--spawn-rate", str(load.users)]
    command += ["--run-time", f"{load.run_time_s}s", "--turns", "6", "--think", "0.2", "--stop-timeout", "5s"]
    return [*command, "--reply-timeout", "5s", "--out", str(folder / "run")]


def _variables(folder: Path, mode: str, load: Load) -> dict[str, str]:
    path = os.pathsep.join((str(HERE / "hook"), str(ROOT)))
    variables = {"PYTHONPATH": path, "STALLS_FOLDER": str(folder)}
    if mode == "interpreter":
        variables["STALLS_HOLD"] = ",".join(str(each) for each in (*load.lengths_ms, load.gap_s, load.seed))
    if mode == "hog-normal":
        variables["VOICEPROBE_PRIORITY"] = "normal"
    return variables


def _injectors(folder: Path, mode: str, load: Load) -> list[list[str]]:
    program = [sys.executable, str(HERE / "injector.py")]
    if mode == "stopped":
        pid = (folder / "generator.pid").read_text()
        lengths = [str(each) for each in load.lengths_ms]
        given = ["--pid", pid, "--log", str(folder / "stopped.jsonl"), "--lengths-ms", *lengths]
        return [[*program, "stop", *given, "--gap", str(load.gap_s), "--seed", str(load.seed)]]
    if mode.startswith("hog"):
        return [[*program, "hog", "--core", str(core)] for core in sorted(os.sched_getaffinity(0))]
    return []


def _await_turns(folder: Path, run: "subprocess.Popen[bytes]") -> None:
    """Wait until the endpoint has answered, so that no stall hits the preparations."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if run.poll() is not None:
            raise RuntimeError(f"voiceprobe run ended with {run.returncode}: see {folder / 'run.log'}")
        if any("response_id" in row for row in _rows(folder / "truth.jsonl")):
            return
        time.sleep(0.2)
    raise RuntimeError(f"no turn within {READY_S:g} s: see {folder / 'run.log'}")


@contextlib.contextmanager
def _endpoint(folder: Path, endpoint: str, seed: int) -> Generator[str]:
    """The endpoint, above all others on the processor: it is the generator that is held up."""
    truth = ["--seed", str(seed)]
    if endpoint == "independent":
        command = [sys.executable, str(HERE / "endpoint.py"), "--log", str(folder / "truth.jsonl"), *truth]
    else:
        command = [sys.executable, "-m", "loadtest.targets.ground_truth", "--truth", str(folder / "truth.jsonl")]
        command += ["--delays", DELAYS, *truth]
    with _child(command, folder / "endpoint.log", ready=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise RuntimeError(f"the endpoint did not start: see {folder / 'endpoint.log'}")
        with contextlib.suppress(OSError):
            os.sched_setscheduler(child.pid, os.SCHED_RR, os.sched_param(ENDPOINT_PRIORITY))
        yield str(json.loads(line)["url"])


@contextlib.contextmanager
def _child(
    command: Sequence[str], log: Path, variables: dict[str, str] | None = None, *, ready: bool = False
) -> Generator["subprocess.Popen[bytes]"]:
    with log.open("ab") as words:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if ready else words,
            stderr=words,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})},
        )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def pooled(comparisons: Iterable[Comparison]) -> Comparison:
    """The turns of several runs."""
    total = Comparison()
    for one in comparisons:
        total.add(one)
    return total
