"""Exit codes of `voiceprobe demo --exit` beside processes that keep cores busy; each demo takes some 75 s.

A verdict must be possible on any machine: a demo ends in 0 (all objectives met) or 3 (one missed). Ending in 4
(generator-limited), 6 (undecided) or otherwise is a failure: the benchmark exits with 1, and keeps the results of such
runs in the folder that it prints.

    python -m tests.benchmarks.demo_hog --runs 20            # one core busy
    python -m tests.benchmarks.demo_hog --runs 10 --hog 0    # nothing beside it
    python -m tests.benchmarks.demo_hog --ordinary           # as root, but without real-time scheduling
"""

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loadtest.exit_codes import ExitCode
from loadtest.run import processes
from telemetry.model import formatting

_DECIDED: Final = (ExitCode.OK, ExitCode.OBJECTIVE_MISSED)
_COUNTED: Final = (*_DECIDED, ExitCode.GENERATOR_LIMITED, ExitCode.UNDECIDED)
_LIMIT_S: Final = 600.0
_HOG: Final = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"

_PR_CAPBSET_DROP: Final = 24  # linux/prctl.h
_CAP_SYS_NICE: Final = 23  # linux/capability.h


@dataclass(frozen=True, slots=True)
class DemoRun:
    """How one demo ended."""

    code: int
    summary: Mapping[str, Any] | None  # of --json; None if the demo wrote none
    hog_s: float | None = None  # processor time of the busy processes
    output: str = ""

    @property
    def decided(self) -> bool:
        """Whether the demo ended with a verdict."""
        return self.code in _DECIDED

    def line(self, number: int) -> str:
        """One line: exit code, turns, open turns of each objective that has some by cause, invalid turns, verdict."""
        if self.summary is None:
            last = self.output.strip().splitlines()[-1:] or ["no output"]
            return f"run {number}: exit {self.code}, no summary: {last[0]}"
        turns = self.summary["turns"]
        opened = [
            f"{objective['name']}: " + ", ".join(f"{count} {cause}" for cause, count in objective["open"].items())
            for objective in self.summary["objectives"]
            if objective["open"]
        ]
        busy = "" if self.hog_s is None else f"; busy processes used {self.hog_s:.0f} s of processor time"
        return (
            f"run {number}: exit {self.code}; {turns['total']} turns, {turns['invalid']} invalid; "
            f"open: {'; '.join(opened) or 'none'}; {self.summary['verdict']['sentence']}{busy}"
        )


def last_line(runs: Sequence[DemoRun], hogs: int) -> str:
    """The number of demos that ended in each code."""
    counts = Counter(run.code for run in runs)
    ended = ", ".join(f"{counts[code]} in {int(code)}" for code in _COUNTED)
    others = len(runs) - sum(counts[code] for code in _COUNTED)
    beside = f"{formatting.count(len(runs), 'demo')} beside {formatting.count(hogs, 'busy core')}"
    return f"{beside} ended: {ended}, {others} otherwise"


@contextmanager
def busy_cores(count: int) -> Generator[list[subprocess.Popen[bytes]]]:
    """Keep the last `count` cores of this process's affinity busy, each with a process pinned to it."""
    cores = sorted(os.sched_getaffinity(0))
    if count > len(cores):
        raise SystemExit(f"--hog {count}: only {len(cores)} cores can be used here; give at most that")
    hogs = [subprocess.Popen([sys.executable, "-c", _HOG, str(core)]) for core in cores[len(cores) - count :]]
    try:
        yield hogs
        if any(hog.poll() is not None for hog in hogs):
            raise RuntimeError("a busy process ended before the demo did: the run says nothing")
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def processor_s(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def give_up_realtime() -> None:
    """Take from this process and its children what root alone has: better priorities than ordinary users may have."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0 and libc.prctl(_PR_CAPBSET_DROP, _CAP_SYS_NICE, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "CAP_SYS_NICE cannot be given up")


def run_demo(out: Path, hogs: int, ordinary: bool, options: Sequence[str]) -> DemoRun:
    """Run one demo beside `hogs` busy cores; an `ordinary` one has no real-time scheduling."""
    file = out / "summary.json"
    command = [sys.executable, "-m", "loadtest.cli.main", "demo", "--exit", "--out", str(out), "--json", str(file)]
    with busy_cores(hogs) as busy:
        done = subprocess.run(
            [*command, *options],
            env=processes.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LIMIT_S,
            check=False,
            preexec_fn=give_up_realtime if ordinary else None,
        )
        hog_s = sum(processor_s(hog.pid) for hog in busy) if busy else None
    (out / "output.txt").write_text(done.stdout)
    summary = json.loads(file.read_text()) if file.is_file() else None
    return DemoRun(done.returncode, summary, hog_s, done.stdout)


def main() -> None:
    """Run the demos and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="how many demos (default: 20)")
    parser.add_argument("--hog", type=int, default=1, help="how many cores are kept busy (default: 1)")
    parser.add_argument("--ordinary", action="store_true", help="without the priorities that only root may have")
    parser.add_argument("--out", type=Path, help="a folder for the results of all demos (default: only failed ones)")
    given, options = parser.parse_known_args()  # what is left is for the demo
    if given.runs < 1 or given.hog < 0:
        parser.error("--runs must be at least 1, and --hog at least 0")
    folder = given.out or Path(tempfile.mkdtemp(prefix="voiceprobe-demo-hog-"))
    runs: list[DemoRun] = []
    for number in range(1, given.runs + 1):
        out = folder / f"run-{number}"
        out.mkdir(parents=True)
        runs.append(run_demo(out, given.hog, given.ordinary, options))
        print(runs[-1].line(number), flush=True)
        if runs[-1].decided and given.out is None:
            shutil.rmtree(out)
    print(last_line(runs, given.hog))
    if not all(run.decided for run in runs):
        print(f"results: {folder}")
        sys.exit(1)
    if given.out is None:
        folder.rmdir()


if __name__ == "__main__":
    main()
