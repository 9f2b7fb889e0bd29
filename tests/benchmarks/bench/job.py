"""What the generator costs and how exact its times are, on this machine and against others."""

import contextlib
import dataclasses
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from loadtest.run.json_file import write_json
from tests.benchmarks.bench import certificate, compared, machine, native, singles, tables
from tests.benchmarks.bench.cases import Case
from tests.benchmarks.bench.conversations import tables as conversation_tables
from tests.benchmarks.bench.conversations.compared import (
    ConversationRow,
    conversation_rows,
    conversation_verdicts,
)
from tests.benchmarks.bench.conversations.rounds import TALKERS, ConversationBench, ConversationTrial
from tests.benchmarks.bench.options import MOST_CALLERS_WITHOUT_COMPILER, Options
from tests.benchmarks.bench.processes import Cores, PartFailedError
from tests.benchmarks.bench.senders import BenchSetup, Trial

# Files that one process has open beside its sockets.
OTHER_FILES: Final = 200
LOG_WIDTH: Final = 132


def bench(options: Options) -> None:
    """Run the benchmark and write what was asked for. Raises OutputError for a file that cannot be written."""
    console = Console(stderr=options.markdown, width=None if sys.stdout.isatty() else LOG_WIDTH)
    with tempfile.TemporaryDirectory(prefix="voiceprobe-bench-") as folder:
        benchmark = Benchmark(options, Path(folder), console)
        benchmark.run()
    if options.json_file is not None:
        write_json(options.json_file, benchmark.result)


class Benchmark:
    """One run of the parts that were asked for: each prints its table as it ends, and adds to the result."""

    def __init__(self, options: Options, folder: Path, console: Console) -> None:
        self.options, self.console = options, console
        self.machine = machine.machine_info()
        self.result: dict[str, Any] = {"machine": self.machine}
        self.rows: list[compared.Row] = []
        self.conversation_rows: list[ConversationRow] = []
        self.errors: list[singles.StampError] = []
        self.most_files = _allow_files()
        built = native.build(folder)
        secured = certificate.make(folder) if "wss" in options.wires else None
        self.setup = BenchSetup(folder, built, Cores.found(), options.warm_up_s, options.window_s, secured)
        self.setup.prepare()

    def say(self, sentence: str) -> None:
        """Print one sentence."""
        self.console.print(sentence, soft_wrap=True)

    def run(self) -> None:
        """All parts, then every target beside what was found."""
        self.say(f"{machine.sentence(self.machine)}, load {self.machine['load_before']}")
        for note in self.setup.native.notes:
            self.say(note)
        if self.setup.cores.sender is None:
            self.say("there is one core: sender and peer share it, and the figures are of both")
        parts: dict[str, Callable[[], None]] = {
            "senders": self.senders,
            "conversations": self.conversations,
            "telemetry": self.telemetry,
            "stamps": self.stamps,
        }
        for name in self.options.parts:
            try:
                parts[name]()
            except PartFailedError as error:
                self.say(f"{name}: no figures, {error}")
                self.result.setdefault("failed", {})[name] = str(error)
        verdicts = [
            *compared.sender_verdicts(self.rows),
            *conversation_verdicts(self.conversation_rows),
            *compared.telemetry_verdicts(self.result.get("telemetry")),
            *compared.stamp_verdicts(self.errors),
        ]
        if verdicts:
            tables.print_verdicts(self.console, verdicts)
        self.result["targets"] = [dataclasses.asdict(verdict) for verdict in verdicts]
        if self.options.markdown:
            talked = conversation_tables.markdown_lines(self.conversation_rows)
            sys.stdout.write(tables.markdown(self.rows, verdicts, machine.sentence(self.machine), talked) + "\n")

    def telemetry(self) -> None:
        """Telemetry for each turn."""
        found = singles.telemetry(self.setup, self.options.turns)
        self.result["telemetry"] = found
        tables.print_telemetry(self.console, found)

    def stamps(self) -> None:
        """The error of event stamps."""
        for mode in self.options.stamps_modes:
            self.errors += singles.stamps(self.setup, Case(self.options.stamps_callers, mode, "ws"))
        self.result["stamps"] = [dataclasses.asdict(error) for error in self.errors]
        tables.print_stamps(self.console, self.errors)

    def senders(self) -> None:
        """The senders' rounds, with progress."""
        cases = self._possible(self.options.cases())
        total = sum(len(self.setup.senders(case)) for case in cases) * self.options.rounds
        with self._progress() as progress:
            task = progress.add_task("senders", total=total)

            def on_trial(trial: Trial) -> None:
                case = trial.case
                progress.update(task, advance=1, description=f"{case.callers} callers, {case.mode}, {case.wire}")

            trials = list(self.setup.rounds(cases, self.options.rounds, on_trial))
        self.rows = compared.rows(trials)
        self.result["trials"] = [dataclasses.asdict(trial) for trial in trials]
        self.result["senders"] = [dataclasses.asdict(row) for row in self.rows]
        tables.print_senders(self.console, self.rows)

    def conversations(self) -> None:
        """Callers who speak, wait and hear."""
        options, most = self.options, self.most_files - OTHER_FILES
        loads = tuple(load for load in options.conversations if load <= most)
        if loads != options.conversations:
            self.say(f"conversations of more than {most} callers are left out: a process may open no more files")
        bench = self._conversation_bench()
        bench.prepare()
        with self._progress() as progress:
            task = progress.add_task("conversations", total=len(loads) * options.rounds * len(TALKERS))

            def on_trial(trial: ConversationTrial) -> None:
                progress.update(task, advance=1, description=f"{trial.callers} conversations")

            trials = list(bench.rounds(loads, options.rounds, on_trial))
        self.conversation_rows = conversation_rows(trials)
        self.result["conversation_trials"] = [dataclasses.asdict(trial) for trial in trials]
        self.result["conversations"] = [dataclasses.asdict(row) for row in self.conversation_rows]
        conversation_tables.print_conversations(self.console, self.conversation_rows)

    def _conversation_bench(self) -> ConversationBench:
        options = self.options
        times = {"warm_up_s": options.conversations_warm_up_s, "window_s": options.conversations_window_s}
        return ConversationBench(dataclasses.replace(self.setup, **times), options.replies)

    def _progress(self) -> Progress:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self.console, transient=True)

    def _possible(self, cases: list[Case]) -> list[Case]:
        """The cases that this machine has the means for; the others are left out with a sentence."""
        if self.setup.certificate is None and any(case.wire == "wss" for case in cases):
            self.say("wss is left out: there is no openssl command to make a certificate with")
            cases = [case for case in cases if case.wire != "wss"]
        most = self.most_files - OTHER_FILES
        if self.setup.native.peer is None:
            most = min(most, MOST_CALLERS_WITHOUT_COMPILER)
        if any(case.callers > most for case in cases):
            why = "a process may open no more files (ulimit -n)"
            if most == MOST_CALLERS_WITHOUT_COMPILER:
                why = "the peer in Python serves no more"
            self.say(f"sizes beyond {most} are left out: {why}")
        return [case for case in cases if case.callers <= most]


def _allow_files() -> int:
    """Raise the limit of open files as far as it goes; how far that is. Children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize
