"""The dashboard as a process of its own, as a person starts it."""

import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO

import psutil

BOUND_S = 90


@dataclass
class Dashboard:
    """A running dashboard process."""

    process: subprocess.Popen[str]
    url: str
    errors: IO[str]

    def end(self) -> None:
        """SIGTERM: no child is left behind, and nothing was printed that a person at the terminal must wonder at."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(BOUND_S) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert not [child for child in children if child.is_running()]
        with self.errors as errors:
            errors.seek(0)
            assert errors.read() == ""


def start_dashboard(*places: str) -> Dashboard:
    """Start it over folders, or with `--store` over a store, and wait until it is ready."""
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end; a pipe that nobody reads would fill up
    process = subprocess.Popen(
        [sys.executable, "-m", "dashboard", *places, "--port", "0", "--headless"],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["ready"] is True
    return Dashboard(process, ready["url"], errors)
