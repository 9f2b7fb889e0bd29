"""The comparison of wires really carries its calls; how fast they are decides nothing here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.run.processes import ROOT
from tests.benchmarks.bench.density.wires import RAW

pytestmark = pytest.mark.nightly

# One of each kind: with heads of its own, in protobuf, and without a WebSocket.
NAMES = ("twilio", "pipecat", "wyoming")


def test_wires_have_figures(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.bench", "density", "--short", "--callers", "4"]
    flags = ["--wires", ",".join(NAMES), "--markdown", "--json", str(tmp_path / "a.json")]
    done = subprocess.run([*command, *flags], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "a.json").read_text())
    assert [wire["wire"] for wire in result["wires"]] == [RAW, *NAMES]
    for wire in result["wires"]:
        assert wire["sent_us"]["middle"] > 0
        assert wire["frame_bytes"] > 160
        assert (wire["times_raw"] is None) == (wire["wire"] == RAW)
        assert (wire["received_us"] is None) == (wire["wire"] == "wyoming")
        assert f"| {wire['wire']} | " in done.stdout
