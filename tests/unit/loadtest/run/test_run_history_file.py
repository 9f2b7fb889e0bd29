"""A history that several looks read and write at once: by real processes, none of whose looks is lost."""

import fcntl
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.errors import UsageError
from loadtest.run.rollout_check import one_at_a_time
from tests.fixtures_rollouts import PLAN_FILE, fill_rollout_store

LOOKS = 4


def command(folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "loadtest.cli.main", "rollout", "check", str(folder / "rollout.toml")),
        *("--store", str(folder / "store"), "--history", str(folder / "history.json")),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rollout")
    fill_rollout_store(made / "store", "equal")
    (made / "rollout.toml").write_text(PLAN_FILE)
    return made


def looks(folder: Path) -> int:
    return len(json.loads((folder / "history.json").read_text())["looks"])


@pytest.mark.slow
def test_looks_that_are_taken_at_once_are_all_kept(folder: Path) -> None:
    running = [subprocess.Popen(command(folder), stdout=subprocess.DEVNULL) for _ in range(LOOKS)]
    assert {process.wait(300) for process in running} == {0}
    assert looks(folder) == LOOKS


@pytest.mark.slow
def test_full_disk_keeps_old_looks_and_promotes_nothing(folder: Path) -> None:
    first = subprocess.run(command(folder), capture_output=True, text=True, timeout=300, check=False)
    assert first.returncode == 0
    before = (folder / "history.json").read_bytes()

    def no_room() -> None:
        # A file may not grow beyond this: the kernel refuses as it does on a full volume.
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

    full = subprocess.run(command(folder), capture_output=True, text=True, timeout=300, check=False, preexec_fn=no_room)
    assert full.returncode not in (0, 3)
    assert "promote" not in full.stdout
    assert "history.json" in full.stderr
    assert "Traceback" not in full.stderr
    assert (folder / "history.json").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == [
        *(".history.json.lock", "history.json", "rollout.toml", "store")
    ]


def test_a_look_that_does_not_end_is_named(tmp_path: Path) -> None:
    history = tmp_path / "history.json"
    refused = pytest.raises(UsageError, match="in use by another look that has not ended within 0 s")
    # Another opening of the file is another holder, also within one process.
    with one_at_a_time(history), refused, one_at_a_time(history, 0):
        pass
    with one_at_a_time(history, 0), (tmp_path / ".history.json.lock").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_without_a_history_nothing_is_locked(tmp_path: Path) -> None:
    with one_at_a_time(None):
        assert list(tmp_path.iterdir()) == []
