"""The end of Locust: before a run had begun, and of a run whose measurements stay."""

import sys
from pathlib import Path

import pytest

from loadtest.cli.guard import guarded
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run.job import check_ending
from loadtest.run.processes import Child, ProcessFailedError, start

FULL = "OSError: [Errno 28] No space left on device"


def ended(program: str, folder: Path) -> Child:
    child = start("locust", ["-c", program], folder / "logs", says_ready=False, program=sys.executable)
    child.process.wait(30)
    return child


@pytest.mark.parametrize(
    ("code", "has_begun", "cause"),
    [
        (0, True, None),
        (1, True, None),
        (4, True, None),
        (2, True, "a fault of its own (exit code 2; log: logs/locust.log)"),
        (120, True, "a fault of its own (exit code 120; log: logs/locust.log)"),
        (1, False, None),
    ],
)
def test_run_that_had_begun_keeps_its_measurements(tmp_path: Path, code: int, has_begun: bool, cause: str) -> None:
    swarm = ended(f"raise SystemExit({code})", tmp_path)
    assert check_ending(swarm, interrupted=False, has_begun=has_begun) == cause
    assert check_ending(swarm, interrupted=True, has_begun=has_begun) is None


def test_fault_is_named_without_a_place_of_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "spool" / "one.wal"
    swarm = ended(f"import sys; sys.stderr.write({f'{FULL}: {str(file)!r}'!r}); sys.exit(2)", tmp_path)
    cause = check_ending(swarm, interrupted=False, has_begun=True)
    assert cause == f"a fault of its own (exit code 2: {FULL}: 'spool/one.wal'; log: logs/locust.log)"


def test_signal_that_ended_locust_is_named(tmp_path: Path) -> None:
    swarm = ended("import os; os.kill(os.getpid(), 9)", tmp_path)
    assert check_ending(swarm, interrupted=False, has_begun=True) == "SIGKILL"
    assert check_ending(swarm, interrupted=True, has_begun=True) is None


@pytest.mark.parametrize("words", ["", FULL])
def test_full_disk_before_the_run_began_is_no_refusal(tmp_path: Path, words: str) -> None:
    """Locust ends with 2 for it, the code of a refusal; a full disk leads to 1, whatever its log still took."""
    swarm = ended(f"import sys; sys.stderr.write({words!r}); sys.exit(2)", tmp_path)

    def command() -> None:
        with pytest.raises(ProcessFailedError) as raised:
            check_ending(swarm, interrupted=False, has_begun=False)
        why = f": {words}" if words else ""
        assert str(raised.value) == f"Locust ended with code 2{why} (log: {swarm.log})"
        raise raised.value

    assert guarded(command) == ExitCode.FAULT


def test_flag_that_locust_does_not_know_is_a_refusal(tmp_path: Path) -> None:
    swarm = ended("import argparse; argparse.ArgumentParser(prog='locust').parse_args(['--x'])", tmp_path)
    with pytest.raises(UsageError, match="unrecognized arguments: --x"):
        check_ending(swarm, interrupted=False, has_begun=False)


def test_what_ends_before_the_first_call_is_no_run(tmp_path: Path) -> None:
    refused = ended("import sys; sys.stderr.write('voiceprobe: no such clip\\n'); sys.exit(2)", tmp_path)
    for interrupted in (False, True):
        with pytest.raises(UsageError, match=r"^no such clip$"):
            check_ending(refused, interrupted=interrupted, has_begun=False)
    with pytest.raises(ProcessFailedError, match="Locust ended with code 3"):
        check_ending(ended("raise SystemExit(3)", tmp_path), interrupted=False, has_begun=False)
