"""Commands as a person gives them: a process of their own, and what it printed."""

import subprocess
import sys
from pathlib import Path

from loadtest.run import processes

# Only ends a hopeless wait.
WAIT_S = 600.0


def completed(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`voiceprobe` with these arguments, once it has ended."""
    return completed_module("loadtest.cli.main", *arguments, cwd=cwd)


def completed_module(module: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE` likewise."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=processes.environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
