"""`voiceprobe runs` and its notes and removals while the run that they are about is written, by real processes."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from loadtest.exit_codes import ExitCode
from telemetry.model.errors import StoreError
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.integration.calling import CORPUS, assistant
from tests.integration.commands import begun, carried_out

BOUND_S = 120
SPEECH = ("--corpus", str(CORPUS), "--clips", "3", "--turns", "2", "--think", "0.1", "--users", "2")


def _called(folder: Path, *arguments: str) -> tuple[int, str, str]:
    done = carried_out(*arguments, cwd=folder)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def _turns(store: Path) -> int:
    try:
        with StoreReader(store) as reader:
            return reader.summary(Filter()).turns.total
    except StoreError:
        return 0


def _wait_for_a_turn(run: subprocess.Popen[str], store: Path) -> None:
    until = time.monotonic() + BOUND_S
    while not _turns(store):
        assert run.poll() is None, "the run ended before it had a turn"
        assert time.monotonic() < until
        time.sleep(0.2)


def _left(folder: Path) -> list[str]:
    """Return the content of a folder of runs."""
    return [path.name for path in folder.iterdir()]


@pytest.mark.nightly
def test_running_run_is_kept_and_removed_only_once_it_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mine"
    with assistant(tmp_path / "logs") as url:
        run = begun("run", url, *SPEECH, "--run-time", "25s", "--out", "runs/mine", "--json", "mine.json", cwd=tmp_path)
        try:
            _wait_for_a_turn(run, folder / "store")

            code, out, err = _called(tmp_path, "runs", "remove", "mine", "--yes")
            assert code == ExitCode.USAGE, out
            assert "the run is under way" in err
            assert "end it first" in err
            assert "removed" not in out
            assert folder.is_dir()

            code, out, err = _called(tmp_path, "runs", "note", "mine", "cold cache <b>")
            assert (code, err) == (ExitCode.OK, "")
            code, out, err = _called(tmp_path, "runs", "--json", "list.json")
            assert code == ExitCode.OK, err
            (listed,) = json.loads((tmp_path / "list.json").read_text())["runs"]
            assert (listed["name"], listed["note"]) == ("mine", "cold cache <b>")
            assert run.poll() is None, "all of that was while the run went on"
            out, err = run.communicate(timeout=BOUND_S)
        finally:
            run.kill()
            run.communicate()
    assert "Traceback" not in err
    summary = json.loads((tmp_path / "mine.json").read_text())
    # Whatever the load of this machine made of it: it ended as a run does, with every turn in its store.
    assert run.returncode == summary["exit_code"]
    assert summary["telemetry"]["missing"] == 0
    assert _turns(folder / "store") == summary["turns"]["total"] > 0

    code, out, err = _called(tmp_path, "runs")
    assert "cold cache <b>" in out, "the end of a run takes no note away"
    code, out, err = _called(tmp_path, "runs", "remove", "mine", "--yes")
    assert (code, err) == (ExitCode.OK, "")
    assert _left(tmp_path / "runs") == []


@pytest.mark.nightly
def test_removing_run_of_killed_processes_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "killed"
    with assistant(tmp_path / "logs") as url:
        run = begun("run", url, *SPEECH, "--run-time", "3m", "--out", "runs/killed", cwd=tmp_path)
        try:
            _wait_for_a_turn(run, folder / "store")
        finally:
            run.kill()
            run.communicate(timeout=BOUND_S)
        # Its children detect its end, and exit: until then the folder is written to, and stays.
        until = time.monotonic() + BOUND_S
        while (outcome := _called(tmp_path, "runs", "remove", "killed", "--yes"))[0] != ExitCode.OK:
            assert "the run is under way" in outcome[2]
            assert folder.is_dir()
            assert time.monotonic() < until
            time.sleep(0.5)
    assert _left(tmp_path / "runs") == []
