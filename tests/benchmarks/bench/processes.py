"""The processes of a benchmark: sender and endpoint on a core each where there are two, all at the same priority; the
programs in C that are built for it; and the machine, without which a figure says nothing."""

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from loadtest.errors import VoiceprobeError
from loadtest.run.processes import ROOT, end_with_parent, environment
from loadtest.swarm.priority import ask_for_priority, wants_realtime

READY_S: Final = 30.0
C_SOURCES: Final = Path(__file__).parent / "c"
LIBRARIES: Final = ("gevent", "locust", "websocket-client", "numpy", "orjson", "opentelemetry-sdk", "duckdb")


class PartFailedError(VoiceprobeError):
    """A part of the benchmark did not start or did not end by itself; the text says which and how."""


def cores() -> tuple[int | None, int | None]:
    """The core of the sender and that of its endpoint: the first and the last; None where there is only one."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (allowed[0], allowed[-1]) if len(allowed) > 1 else (None, None)


def built(folder: Path, name: str) -> str:
    """Compile a program in C into a folder; how to start it. Raises PartFailedError."""
    cc, target = shutil.which("cc"), folder / name
    if cc is None:
        raise PartFailedError("there is no C compiler: install cc (Debian: build-essential)")
    command = [cc, "-O2", "-o", str(target), str(C_SOURCES / f"{name}.c"), "-lssl", "-lcrypto"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        why = next((line for line in done.stderr.splitlines() if "error" in line), "it printed nothing")
        raise PartFailedError(f"{name}.c could not be compiled (it needs OpenSSL's headers, Debian: libssl-dev): {why}")
    return str(target)


def machine_info() -> dict[str, Any]:
    """Return the properties of the machine that the figures depend on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": (models or [platform.machine()])[0],
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def machine_sentence(known: dict[str, Any]) -> str:
    """The same in one line, for people."""
    return f"{known['cpu']}, {known['cores']} cores, {known['system']}, Python {known['python']}"


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
