"""The end of Locust: before a run had begun, and of a run whose measurements stay."""

import sys
from pathlib import Path

import pytest

from loadtest.errors import UsageError
from loadtest.run.job import check_ending
from loadtest.run.processes import Child, ProcessFailedError, start


def ended(program: str, folder: Path) -> Child:
    child = start("locust", ["-c", program], folder, says_ready=False, program=sys.executable)
    child.process.wait(30)
    return child


@pytest.mark.parametrize(
    ("code", "has_begun", "cause"),
    [
        (0, True, None),
        (1, True, None),
        (4, True, None),
        (2, True, "a fault of its own (exit code 2)"),
        (120, True, "a fault of its own (exit code 120)"),
        (1, False, None),
    ],
)
def test_run_that_had_begun_keeps_its_measurements(tmp_path: Path, code: int, has_begun: bool, cause: str) -> None:
    swarm = ended(f"raise SystemExit({code})", tmp_path)
    assert check_ending(swarm, interrupted=False, has_begun=has_begun) == cause
    assert check_ending(swarm, interrupted=True, has_begun=has_begun) is None


def test_signal_that_ended_locust_is_named(tmp_path: Path) -> None:
    swarm = ended("import os; os.kill(os.getpid(), 9)", tmp_path)
    assert check_ending(swarm, interrupted=False, has_begun=True) == "SIGKILL"
    assert check_ending(swarm, interrupted=True, has_begun=True) is None


def test_what_ends_before_the_first_call_is_no_run(tmp_path: Path) -> None:
    refused = ended("import sys; sys.stderr.write('voiceprobe: no such clip\\n'); sys.exit(2)", tmp_path)
    for interrupted in (False, True):
        with pytest.raises(UsageError, match=r"^no such clip$"):
            check_ending(refused, interrupted=interrupted, has_begun=False)
    with pytest.raises(ProcessFailedError, match="Locust ended with code 3"):
        check_ending(ended("raise SystemExit(3)", tmp_path), interrupted=False, has_begun=False)
