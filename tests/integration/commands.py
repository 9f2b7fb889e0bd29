"""Commands as a person gives them, in a process of their own or in this one, and what they printed."""

import contextlib
import io
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from unittest import mock

from loadtest.cli.main import main
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


def begun(
    *arguments: str, cwd: Path | None = None, variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[str]:
    """`voiceprobe` with these arguments, started in a session of its own, with variables in its environment."""
    return subprocess.Popen(
        [sys.executable, "-m", "loadtest.cli.main", *arguments],
        env=processes.environment() | variables,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of a command; its exit code, and what it printed to each stream."""
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, err


def carried_out(
    *arguments: str, cwd: Path, program: Callable[[], None] = main, name: str = "voiceprobe"
) -> subprocess.CompletedProcess[str]:
    """`voiceprobe` with these arguments in this process, where no second goes by until a command begins."""
    out, err, command = io.StringIO(), io.StringIO(), [name, *arguments]
    code: object = 0
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", command),
    ):
        try:
            program()
        except SystemExit as ended:
            code = ended.code
    return subprocess.CompletedProcess(command, int(str(code or 0)), out.getvalue(), err.getvalue())
