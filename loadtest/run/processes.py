"""Child processes of a command: each in its own process group, ended with it, its output in a log."""

import contextlib
import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

import loadtest
from loadtest.errors import VoiceprobeError

ROOT: Final = Path(loadtest.__file__).resolve().parents[1]
_ENDS_WITHIN_S: Final = 5.0  # a process that has closed its output
_PR_SET_PDEATHSIG: Final = 1
END_TIMEOUT_S: Final = 15.0
_REDIS_READY_S: Final = 10.0
BYSTANDER_NICENESS: Final = 5
# Below the ports of outgoing connections (32768 and up on Linux, 49152 and up elsewhere).
_FREE_PORTS: Final = range(20_000, 32_000)
_OURS: Final = "voiceprobe: "
_REFUSAL: Final = re.compile(rf"^({_OURS}|\S+: error: )", re.MULTILINE)
_LAST_LINES: Final = 3
# The last line of a traceback.
_ERROR: Final = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b.*")
# The first line of each table that Locust prints.
_TABLE: Final = re.compile(r"Type +Name +|Response time percentiles|Error report|# occurrences|-+\|-")


class ProcessFailedError(VoiceprobeError):
    """A process of ours did not start or did not become ready."""


def environment() -> dict[str, str]:
    """The environment for a child: it finds our packages wherever it is started."""
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else str(ROOT), "PYTHONUNBUFFERED": "1"}


def end_with_parent() -> None:
    """End this process, a child, when its parent ends."""
    # A parent that is killed outright cannot end its children: the kernel does.
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stand_by() -> None:
    """Lower this process's priority below the audio processes."""
    os.nice(max(0, BYSTANDER_NICENESS - os.getpriority(os.PRIO_PROCESS, 0)))


def _prepare_bystander() -> None:
    stand_by()
    # Where Linux groups processes by session, it is the group's niceness that counts against others.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(BYSTANDER_NICENESS))
    end_with_parent()


@dataclass
class Child:
    """A running process of ours. `ready` is the object of its ready line."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    ready: dict[str, Any] = field(default_factory=dict[str, Any])
    ready_or_ended: threading.Event = field(default_factory=threading.Event)
    reader: threading.Thread | None = None
    ended_at_s: float | None = None  # when it was first seen to have ended before those it started
    log_begin: int = 0  # how many bytes of the log are older than this process

    def ended(self) -> int | None:
        """Its exit code once it has ended."""
        return self.process.poll()

    def all_ended(self, patience_s: float) -> bool:
        """Return whether it and all that it started have ended. What outlives it has `patience_s` to end; where it was
        killed and could tell nobody, the others are asked to end."""
        code = self.process.poll()
        if code is None:
            return False
        if not self._others():
            return True
        now_s = time.monotonic()
        if self.ended_at_s is None:
            self.ended_at_s = now_s
            if code < 0:
                self._signal_others(signal.SIGTERM)
        elif now_s - self.ended_at_s > patience_s:
            self._signal_others(signal.SIGKILL)
        return False

    def kill(self) -> None:
        """End it and all that it started, at once."""
        self.process.kill()
        self._signal_others(signal.SIGKILL)

    def _others(self) -> list[int]:
        """Processes of its group that still run; a process that nobody waits for any more does not."""
        if not hasattr(os, "getpgid"):
            return []
        pids: list[int] = []
        for process in psutil.process_iter(["status"]):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                alive = process.info["status"] != psutil.STATUS_ZOMBIE
                if alive and process.pid != self.process.pid and os.getpgid(process.pid) == self.process.pid:
                    pids.append(process.pid)
        return pids

    def _signal_others(self, number: signal.Signals) -> None:
        for pid in self._others():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop_yielding(self, niceness: int) -> None:
        """Restore normal priority once no audio is due, as far as the system permits: to
        lower a niceness takes a privilege, to lower that of a session does not."""
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.process.pid}/autogroup").write_text(str(niceness))
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PGRP, self.process.pid, niceness)

    def interrupt(self) -> None:
        """Ask it to end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def end(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """End it, kindly first; its exit code."""
        self.interrupt()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        self._signal_others(signal.SIGKILL)
        if self.reader is not None:
            self.reader.join(1.0)  # it ends with the pipe, which a grandchild may hold open
        return code

    def last_words(self) -> str:
        """The reason that its log gives for its end, for an error sentence; see `reason_in`."""
        return reason_in(self._written())

    def says_refusal(self) -> bool:
        """Return whether its log has a sentence of ours, or of its parser of flags, as a refusal to start has."""
        return _REFUSAL.search(self._written()) is not None

    def _written(self) -> str:
        try:
            return self.log.read_bytes()[self.log_begin :].decode(errors="replace")
        except OSError:
            return ""


def reason_in(text: str) -> str:
    """Return what the log of a process says about its end: its last error and our own sentences, else its last lines.

    Locust ends with tables of its statistics, whatever it ends for: they are no reason.
    """
    lines = _without_tables(text)
    errors = [line for line in lines if _ERROR.match(line)]
    ours = [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]
    shown = [*errors[-1:], *ours[-_LAST_LINES:]] or lines[-_LAST_LINES:]
    return "; ".join(dict.fromkeys(shown))


def _without_tables(text: str) -> list[str]:
    """Return the lines that are neither empty nor part of one of Locust's tables, which end with an empty line."""
    lines: list[str] = []
    in_table = False
    for line in text.splitlines():
        in_table = bool(line.strip()) and (in_table or _TABLE.match(line) is not None)
        if line.strip() and not in_table:
            lines.append(line.strip())
    return lines


def start(
    name: str,
    arguments: Sequence[str],
    log_dir: Path,
    *,
    says_ready: bool,
    takes_orders: bool = False,
    bystander: bool = True,
    variables: Mapping[str, str] | None = None,
    program: str = sys.executable,
) -> Child:
    """Start `python -m …` (or another program) in a process group of its own; for one that `says_ready` see
    `wait_until_ready`.

    `variables` are added to its environment: what a list of processes must not show. A `bystander` yields the processor
    to those whose audio is due by the millisecond. Of one that `takes_orders`, standard input and output are pipes for
    the command that starts it.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    log = log_dir / f"{name}.log"
    with log.open("ab") as words:
        log_begin = words.tell()
        process = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.PIPE if takes_orders else subprocess.DEVNULL,
            stdout=subprocess.PIPE if says_ready or takes_orders else words,
            stderr=words,
            env={**environment(), **(variables or {})},
            start_new_session=True,
            preexec_fn=_prepare_bystander if bystander else end_with_parent,  # noqa: PLW1509 - they need no lock
        )
    child = Child(name, process, log, log_begin=log_begin)
    if says_ready:
        child.reader = threading.Thread(target=_read_words, args=(child,), daemon=True, name=f"{name}-output")
        child.reader.start()
    return child


def _read_words(child: Child) -> None:
    """Find the ready line; read on to the end, so that a talkative child never blocks on a full pipe."""
    stdout = child.process.stdout
    assert stdout is not None  # noqa: S101 - it was asked for
    with stdout, child.log.open("ab") as log:
        for line in stdout:
            if not child.ready and line.lstrip().startswith(b"{"):
                with contextlib.suppress(ValueError):
                    child.ready.update(json.loads(line))
                    child.ready_or_ended.set()
                    continue
            log.write(line)
            log.flush()
    child.ready_or_ended.set()


def wait_until_ready(child: Child, within_s: float) -> dict[str, Any]:
    """The object of the child's JSON ready line. Raises ProcessFailedError with the end of its log."""
    is_over = child.ready_or_ended.wait(within_s)
    if child.ready:
        return child.ready
    code = _code_of_ended(child) if is_over else child.process.poll()
    child.end(2.0)
    how = f"ended with code {code}" if code is not None else f"was not ready within {within_s:g} s"
    detail = child.last_words()
    raise ProcessFailedError(f"the {child.name} {how}{': ' + detail if detail else ''} (log: {child.log})")


def _code_of_ended(child: Child) -> int | None:
    """The exit code of a child that has closed its output, which it does a moment before it has ended."""
    try:
        return child.process.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        return None


def is_free(port: int) -> bool:
    """Return whether nobody listens on a loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_port(preferred: int | None = None) -> int:
    """The preferred loopback port, or a random free one if it is taken or none is preferred.

    Whoever asks listens on it only a moment later. A random port is below those that systems give to outgoing
    connections, so that no connection takes it in between. Raises ProcessFailedError if no port is free.
    """
    candidates = secrets.SystemRandom().sample(_FREE_PORTS, 100)
    for port in candidates if preferred is None else (preferred, *candidates):
        if is_free(port):
            return port
    raise ProcessFailedError("no loopback port is free")


@contextlib.contextmanager
def ending(*children: Child) -> Generator[None]:
    """End the children on the way out, the last one first."""
    try:
        yield
    finally:
        for child in reversed(children):
            child.end()


def start_assistant(stack: ExitStack, log_dir: Path, *flags: str, name: str = "assistant") -> Child:
    """Start a reference assistant, which ends with the stack; its timing is measured, so it yields to nobody."""
    arguments = ["-m", "loadtest.targets.assistant", *flags]
    child = start(name, arguments, log_dir, says_ready=True, bystander=False)
    stack.enter_context(ending(child))
    return child


@contextlib.contextmanager
def redis_server(folder: Path, *flags: str) -> Generator[str | None]:
    """Start a Redis server whose files are in the folder; its URL, None where the program is not installed.

    Raises ProcessFailedError when it does not start.
    """
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    port = free_port()
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), *flags]
    server = start("redis", arguments, folder, says_ready=False, bystander=False, program=program)
    with ending(server):
        deadline_s = time.monotonic() + _REDIS_READY_S
        while not _is_listened_at(port):
            if server.ended() is not None or time.monotonic() > deadline_s:
                raise ProcessFailedError(f"redis-server did not start (log: {server.log})")
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"


def _is_listened_at(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True
