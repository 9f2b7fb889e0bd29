"""A tiny calibration for real: Locust, sidecar, store and the ground-truth endpoint, each its own process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.exit_codes import ExitCode
from tests.integration.commands import carried_out

COMMAND = (sys.executable, "-m", "loadtest.cli.main", "calibrate")


@pytest.mark.nightly
def test_interrupted_calibration_keeps_finished_loads_and_errors(tmp_path: Path) -> None:
    file, picture = tmp_path / "calibration.json", tmp_path / "calibration.png"
    flags = ("--loads", "1,3,4", "--turns", "4", "--no-faults", "--json", str(file), "--picture", str(picture))
    environment = os.environ | {"VOICEPROBE_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}
    command = (*COMMAND, *flags, "--out", str(tmp_path / "out"))
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("4 callers …"):
                break
        process.send_signal(signal.SIGINT)
        output = process.stdout.read()
        assert process.wait(600) == ExitCode.INTERRUPTED
    value = json.loads(file.read_text())
    assert value["interrupted"] is True
    # So few turns can be judged by nobody.
    assert [(step["callers"], step["verdict"]) for step in value["steps"]] == [
        (1, "too few turns"),
        (3, "too few turns"),
    ]
    for step in value["steps"]:
        assert step["turns"] >= (1 if step["callers"] == 1 else 0)
        assert step["lost"] == 0
        assert step["pacing"]["n"] > 0
        errors = step["errors"]["voice_to_voice"]
        # A turn that the machine disturbed is invalid, or the endpoint knows that it was interrupted: what is left is
        # held against the truth.
        assert errors["n"] <= step["turns"] - step["invalid"]
        # However busy the machine is, what the turns state holds.
        intervals = step["intervals"]
        assert (intervals["n"], intervals["within"], intervals["not_stated"]) == (errors["n"], errors["n"], 0)
        if errors["n"]:
            # How late this machine let frames come and the endpoint answer is what the endpoint itself saw of it.
            paused_s = step["pacing"]["max_s"] + step["endpoint_lag"]["max_s"]
            assert errors["p50_s"] < 0.005 + paused_s
    assert picture.read_bytes().startswith(b"\x89PNG")
    (stored,) = (tmp_path / "home" / "calibrations").iterdir()
    assert json.loads(stored.read_text()) == value
    assert "no load could be judged" in output


def test_flags_that_cannot_be_used_are_one_sentence(tmp_path: Path) -> None:
    ended = carried_out("calibrate", "--loads", "5,1", "--out", str(tmp_path / "out"), cwd=tmp_path)
    assert ended.returncode == ExitCode.USAGE
    assert ended.stderr.startswith("voiceprobe: --loads")
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out").exists()
