"""The list of runs as programs read it."""

import json
from pathlib import Path

from rich.console import Console

from loadtest.exit_codes import ExitCode
from loadtest.run.runs import RunsRequest, list_runs
from tests.run_folders import write_summary


def test_a_level_below_0_has_the_hyphen_that_programs_read(tmp_path: Path) -> None:
    profile = {"noise": "babble", "snr_db": -5.0, "channel": "g711u"}
    write_summary(tmp_path / "loud", "r-1", run={"id": "r-1", "profile": profile})
    file = tmp_path / "runs.json"
    assert list_runs(RunsRequest((str(tmp_path),), None, json_file=file), Console(quiet=True)) is ExitCode.OK
    (found,) = json.loads(file.read_text())["runs"]
    assert found["profile"] == "babble -5 dB, g711u"
