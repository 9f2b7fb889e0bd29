"""The processes of a benchmark: sender and peer on a core each where there are two, all at the same priority."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loadtest.run.processes import ROOT, end_with_parent, environment
from loadtest.swarm.priority import ask_for_priority, wants_realtime

READY_S: Final = 30.0


class PartFailedError(Exception):
    """A part of the benchmark did not start or did not end by itself; the text says which and how."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Who runs where; None where there is only one core to run on."""

    sender: int | None
    peer: int | None

    @classmethod
    def found(cls) -> "Cores":
        """The first core for the sender, the last for its peer."""
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        return cls(allowed[0], allowed[-1]) if len(allowed) > 1 else cls(None, None)


def start(command: Sequence[str], core: int | None, log: Path) -> subprocess.Popen[str]:
    """Start a part on a core; its standard error goes to the log."""

    wants_realtime()  # a choice that does not exist is refused here, and not in the child

    def prepare() -> None:
        end_with_parent()
        if core is not None:
            os.sched_setaffinity(0, {core})
        # As a swarm does: a wait for the processor is no property of a sender.
        ask_for_priority()

    with log.open("ab") as words:
        return subprocess.Popen(
            list(command),
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - it takes no lock
        )


@dataclass(slots=True)
class Server:
    """A running part that others connect to. `ready` is its first line; `last` the last one, once it has ended."""

    name: str
    process: subprocess.Popen[str]
    log: Path
    ready: dict[str, Any]
    last: dict[str, Any]

    def end(self) -> None:
        """Ask it to end, and read its last line."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.last = finish(self.name, self.process, READY_S, self.log)


@contextlib.contextmanager
def serving(name: str, command: Sequence[str], core: int | None, log: Path) -> Generator[Server]:
    """A part that prints one JSON line when it is ready; killed on the way out unless it has ended."""
    process = start(command, core, log)
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise PartFailedError(f"the {name} did not start: {last_words(log)}")
        yield Server(name, process, log, json.loads(line), {})
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def finish(name: str, process: subprocess.Popen[str], within_s: float, log: Path) -> dict[str, Any]:
    """Wait for a part's end; the last JSON line that it printed. Raises PartFailedError."""
    try:
        output, _ = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        raise PartFailedError(f"the {name} did not end within {within_s:g} s: {last_words(log)}") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    lines = [line for line in output.splitlines() if line.startswith("{")]
    code = process.returncode
    if code < 0:
        raise PartFailedError(f"the {name} was ended by {signal.Signals(-code).name}")
    if code or not lines:
        raise PartFailedError(f"the {name} ended with code {code}: {last_words(log)}")
    return json.loads(lines[-1])


def last_words(log: Path) -> str:
    """The end of a log."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
