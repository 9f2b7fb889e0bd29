"""The dashboard as a process of its own, as a person starts it."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass

import psutil

BOUND_S = 90


@dataclass
class Dashboard:
    """A running dashboard process."""

    process: subprocess.Popen[str]
    url: str

    def end(self) -> None:
        """SIGTERM, and no child left behind."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(BOUND_S) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert not [child for child in children if child.is_running()]


def start_dashboard(*places: str) -> Dashboard:
    """Start it over folders, or with `--store` over a store, and wait until it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dashboard", *places, "--port", "0", "--headless"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["ready"] is True
    return Dashboard(process, ready["url"])
