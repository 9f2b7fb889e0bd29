"""Servers that we did not write, each a process in an environment of its own, ready when it listens."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from tests.integration.waiting import wait_until

# Where `./voiceprobe test` has prepared the environments, and what it says of those that it could not prepare.
PLACE_VARIABLE = "VOICEPROBE_PEERS"
REASON_VARIABLE = "VOICEPROBE_MISSING_PEERS"
ENDING_S = 15
LOG_LINES = 30


def python_of(peer: str) -> str:
    """The interpreter of the environment made of tests/peers/PEER.lock.

    Where there is none, the test is skipped with the reason; in continuous integration it fails.
    """
    places = Path(os.environ.get(PLACE_VARIABLE) or Path(sys.prefix) / "peers")
    python = places / peer / "bin" / "python"
    if not (places / peer / ".voiceprobe-stamp").exists():
        why = os.environ.get(REASON_VARIABLE) or "./voiceprobe test prepares it"
        reason = f"the environment of the peer {peer} is missing ({why})"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return str(python)


def pipecat_runner(port: int, *flags: str) -> list[str]:
    """The command of Pipecat's development runner with the bot of pipecat_bot.py."""
    bot = str(Path(__file__).parent / "pipecat_bot.py")
    return [python_of("pipecat"), bot, "--host", "127.0.0.1", "--port", str(port), *flags]


def livekit_console(port: int) -> list[str]:
    """The command of LiveKit's console link with the agent of livekit_agent.py, which connects to a caller."""
    agent = str(Path(__file__).parent / "livekit_agent.py")
    address = f"127.0.0.1:{port}"
    return [python_of("livekit"), "-m", "livekit.agents", "console", agent, "--connect-addr", address]


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(
    command: list[str], log: Path, *, environment: Mapping[str, str] | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """Run a process until the block ends.

    Nothing of our own packages is on its path, and it may report home to nobody.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OTEL_"))}
    kept |= {"DO_NOT_TRACK": "1", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            env=kept | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(ENDING_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def running(
    command: list[str], port: int, log: Path, *, environment: Mapping[str, str] | None = None, within_s: float = 120.0
) -> Generator[int]:
    """Run a server until the block ends; gives its port once it accepts connections. Fails with the end of its log."""
    with started(command, log, environment=environment) as process:
        wait_until(lambda: process.poll() is not None or _listens(port), within_s)
        assert process.poll() is None, f"the peer ended:\n{last_lines(log)}"
        yield port


def last_lines(log: Path) -> str:
    """The end of what a peer has printed, for an error sentence."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
