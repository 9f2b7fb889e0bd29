"""The load generator next to a program in C and a usual locustfile: one measurement, and all that were asked for."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

from loadtest.targets.ground_truth.plan import Behavior
from tests.benchmarks.bench.callers.window import CONNECT_S
from tests.benchmarks.bench.figures import TruthColumn, TurnColumn, figures
from tests.benchmarks.bench.modes import MODES, Mode, greeting, prepared_speech, write_answers, write_speech
from tests.benchmarks.bench.paired import Figures, Report, Spread, Trial, ratio, rounds, shown, spread
from tests.benchmarks.bench.processes import built, cores, finish, serving, start
from tests.integration.certificates import authority

CONTROL: Final = "C"
OURS: Final = "voiceprobe"
NAIVE: Final = "usual locustfile"
# What holds our callers up, and what that is.
STALLS: Final = {
    "none": "nothing",
    "interpreter": "a thread that holds the interpreter for 50, 200 or 1,000 ms about every two seconds",
    "stopped": "SIGSTOP of the callers for 5 to 200 ms about every 600 ms",
    "busy": "a process that keeps each core busy",
}
_STOPPED_S: Final = (0.005, 0.2)
_STOPPED_EVERY_S: Final = 0.6
# Files that one process has open in addition to its sockets.
OTHER_FILES: Final = 200
# Besides connecting and its window, a sender starts up and comes to its end.
ENDS_S: Final = CONNECT_S + 30.0
# Callers that come to fewer turns than those in C cost less because they do less.
LEAST_TURNS_SHARE: Final = 0.95
COLUMNS: Final = (
    ("µs/frame", "cpu_us", "{:.1f}"),
    ("core", "core", "{:.0%}"),
    ("late p50", "late_p50", "{:,.2f}"),
    ("p99", "late_p99", "{:,.2f}"),
    ("max", "late_max", "{:,.1f}"),
    ("unsent", "unsent", "{:.1%}"),
    ("error p50", "error_p50", "{:,.3f}"),
    ("p99", "error_p99", "{:,.3f}"),
    ("width p50", "width_p50", "{:,.3f}"),
    ("p99", "width_p99", "{:,.3f}"),
    ("turns", "turns", "{:,.0f}"),
    ("invalid", "invalid", "{:,.0f}"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A case at which a round compares the senders."""

    callers: int
    mode: str
    wire: str = "ws"
    stall: str = ""

    @property
    def name(self) -> str:
        """The printed name, unique to the case."""
        return f"{self.callers:,} {self.mode}, {self.stall or self.wire}"

    @property
    def senders(self) -> tuple[str, ...]:
        """The senders of the case: the program in C speaks no TLS, a usual locustfile holds no conversations."""
        if self.stall:
            return (OURS,)
        if self.mode == "conversations":
            return (CONTROL, OURS) if self.wire == "ws" else (OURS,)
        return (CONTROL, OURS, NAIVE) if self.wire == "ws" else (OURS, NAIVE)


@dataclass(frozen=True, slots=True)
class Options:
    """The requested options."""

    cases: tuple[Case, ...]
    rounds: int
    warm_up_ms: int
    window_ms: int
    replies: Behavior


class GeneratorBench:
    """The bench that measures senders: a folder for records, the programs in C, and the times."""

    def __init__(self, folder: Path, options: Options) -> None:
        """Raises PartFailedError where the programs in C cannot be compiled."""
        self.folder, self._options = folder, options
        self._caller, self._endpoint = built(folder, "caller"), built(folder, "endpoint")
        self._core, self._other_core = cores()
        known = authority(folder / "authority") if any(case.wire == "wss" for case in options.cases) else None
        self._authority, self._signed = known, known and known.sign("localhost")
        write_speech(*prepared_speech(), folder / "speech")
        (folder / "greeting").write_bytes(greeting())
        for name in MODES:
            write_answers(self._mode(name), folder / name)

    def _mode(self, name: str) -> Mode:
        mode = MODES[name]
        return replace(mode, replies=self._options.replies) if mode.replies else mode

    def measure(self, case: Case, sender: str) -> Figures:
        """One window of one sender. Raises PartFailedError."""
        (self.folder / "turns").write_bytes(b"")
        answer, endpoint = self._window(case, sender)
        records = (
            np.fromfile(self.folder / "turns", np.int64).reshape(-1, len(TurnColumn)),
            np.fromfile(self.folder / "truth", np.int64).reshape(-1, len(TruthColumn)),
        )
        return figures(case.callers, answer, np.fromfile(self.folder / "lateness", np.int64), records, endpoint)

    def _window(self, case: Case, sender: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run one window; return what the sender and the endpoint printed."""
        options, log = self._options, self.folder / "log"
        with ExitStack() as stack:
            more: list[str] = []
            if sender == OURS:
                sink_command = [sys.executable, "-m", "tests.benchmarks.bench.sink"]
                sink = stack.enter_context(serving("collector", sink_command, self._other_core, log))
                more = ["--collector", f"http://127.0.0.1:{sink.ready['port']}"]
            command = self._endpoint_command(case)
            endpoint = stack.enter_context(serving("endpoint", command, self._other_core, log))
            command = self._sender_command(case, sender, endpoint.ready["port"])
            child = start([*command, *more], self._core, log)
            stack.enter_context(held_up(case.stall, child.pid))
            within_s = ENDS_S + (options.warm_up_ms + options.window_ms) / 1e3
            answer = finish(f"{sender} callers", child, within_s, log)
            endpoint.end()
        return answer, endpoint.last

    def _endpoint_command(self, case: Case) -> list[str]:
        files = [str(self.folder / name) for name in ("greeting", "speech", case.mode, "truth")]
        signed = self._signed if case.wire == "wss" else None
        tls = [] if signed is None else [str(signed.cert), str(signed.key)]
        return [self._endpoint, *files, str(self._mode(case.mode).at_once), *tls]

    def _sender_command(self, case: Case, sender: str, port: int) -> list[str]:
        options, module = self._options, {OURS: "ours", NAIVE: "naive"}.get(sender)
        words = [str(number) for number in (port, case.callers, options.warm_up_ms, options.window_ms)]
        words += [str(self.folder / name) for name in ("speech", "lateness", "turns")]
        words += self._mode(case.mode).words
        if module is None:
            return [self._caller, *words]
        if case.wire == "wss" and self._authority is not None:
            words += ["--ca-file", str(self._authority.cert)]
        if case.stall == "interpreter":
            words.append("--hold")
        return [sys.executable, "-m", f"tests.benchmarks.bench.callers.{module}", *words]


@contextlib.contextmanager
def held_up(stall: str, pid: int) -> Generator[None]:
    """Hold a process up from outside until the end, in the way of this name."""
    ended, draw = threading.Event(), Random(1)

    def stop_now_and_then() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not ended.wait(draw.uniform(0.2, 1.8) * _STOPPED_EVERY_S):
                os.kill(pid, signal.SIGSTOP)
                ended.wait(draw.uniform(*_STOPPED_S))
                os.kill(pid, signal.SIGCONT)

    stopping = threading.Thread(target=stop_now_and_then if stall == "stopped" else ended.wait)
    stopping.start()
    busy = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(busy) for _ in range((os.cpu_count() or 1) if stall == "busy" else 0)]
    try:
        yield
    finally:
        ended.set()
        stopping.join()
        for hog in hogs:
            hog.kill()
            hog.wait()


def bench_generator(options: Options, report: Report) -> None:
    """Measure every case, and print the table. Raises PartFailedError, and OutputError for a file."""
    most = _allow_files() - OTHER_FILES
    cases = {case.name: case for case in options.cases if case.callers <= most}
    if len(cases) < len(options.cases):
        report.say(f"sizes beyond {most} are left out: a process may open no more files (ulimit -n)")
    if cores()[0] is None:
        report.say("there is one core: sender and endpoint share it, and the figures are of both")
    with tempfile.TemporaryDirectory(prefix="voiceprobe-bench-") as folder, report.progress() as progress:
        bench = GeneratorBench(Path(folder), options)
        task = progress.add_task("", total=options.rounds * sum(len(case.senders) for case in cases.values()))
        trials = rounds(
            {name: case.senders for name, case in cases.items()},
            options.rounds,
            lambda name, sender: bench.measure(cases[name], sender),
            lambda trial: progress.update(task, advance=1, description=f"{trial.case}, {trial.sender}"),
        )
    title = "Medians of the rounds; late, error of voice-to-voice and width of its interval in ms"
    by_sender = [(name, sender) for name, case in cases.items() for sender in case.senders]
    report.table(
        title, ("callers", "× C", "× usual", *(heading for heading, _, _ in COLUMNS)), table_rows(trials, by_sender)
    )
    for name, sender in by_sender:
        for remark in remarks(trials, name, sender):
            report.say(f"{name}, {sender}: {remark}")
    report.write(trials=[asdict(trial) for trial in trials])


def table_rows(trials: Sequence[Trial], by_sender: Sequence[tuple[str, str]]) -> list[list[str]]:
    """A row for each sender at each case."""
    rows: list[list[str]] = []
    for name, sender in by_sender:
        mine = [trial.figures for trial in trials if (trial.case, trial.sender) == (name, sender)]

        def middle(key: str, mine: list[Figures] = mine) -> Spread | None:
            return spread(measured.get(key) for measured in mine)

        times = [
            ratio(trials, name, (sender, other), "cpu_us") if sender == OURS else None for other in (CONTROL, NAIVE)
        ]
        cells = [shown(time, "{:.2f}", with_range=True) for time in times]
        rows.append([f"{name}: {sender}", *cells, *(shown(middle(key), form) for _, key, form in COLUMNS)])
    return rows


def remarks(trials: Sequence[Trial], case: str, sender: str) -> list[str]:
    """Return the faults of a row, a sentence each."""
    mine = [trial for trial in trials if (trial.case, trial.sender) == (case, sender)]
    total: dict[str, float] = {}
    for key, value in (item for trial in mine for item in trial.figures.items()):
        total[key] = total.get(key, 0) + (value or 0)
    texts = [f"no figure from one round, {trial.failed}" for trial in mine if trial.failed is not None]
    if total.get("endpoint_was_limit"):
        texts.append("the endpoint was itself late or short of processor; read with care")
    sentences = {
        "outside": "turns whose true voice-to-voice is not within the stated interval",
        "unanswered": "turns without an answer",
        "missing": "answers of the endpoint in no caller's record",
    }
    texts += [f"{total[key]:,.0f} {words}" for key, words in sentences.items() if total.get(key)]
    texts += [f"{number:,.0f} turns {key}" for key, number in total.items() if key.startswith("invalid by")]
    share = ratio(trials, case, (OURS, CONTROL), "turns") if sender == OURS else None
    if share is not None and share.middle < LEAST_TURNS_SHARE:
        texts.append(f"only {share.middle:.0%} of the turns of callers in C: the ratio compares less work with more")
    return texts


def _allow_files() -> int:
    """Raise the limit of open files as far as it goes; how far that is. Children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize
