"""`voiceprobe capacity` against an assistant that writes a declared number of answers at the same time."""

import json
from pathlib import Path

import pytest

from loadtest.exit_codes import ExitCode
from loadtest.run.artifacts import NAMES
from telemetry.store.run_folders.places import CAPACITY_NAME
from tests.integration.calling import CORPUS, assistant
from tests.integration.commands import carried_out, completed

pytestmark = pytest.mark.slow

SPEECH = ["--corpus", CORPUS, "--length", "short", "--clips", "6", "--think", "0.2", "--endpointing", "200ms"]
SLO = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: voice-to-voice}
spec:
  service: voice-assistant
  budgetingMethod: Occurrences
  indicator:
    metadata: {name: voice-to-voice}
    spec:
      ratioMetric:
        counter: true
        good: {metricSource: {type: voiceprobe, spec: {metric: voice_to_voice, threshold: 2s}}}
        total: {metricSource: {type: voiceprobe, spec: {turns: eligible}}}
  objectives: [{target: 0.5}]
"""


@pytest.mark.nightly
def test_the_capacity_lies_where_the_assistant_has_no_place_left(tmp_path: Path) -> None:
    """Two answers at a time, each for 500 ms or more: some 4 a second. 8 callers ask for fewer, 32 for more. Two
    processes share the callers of each step."""
    (tmp_path / "slo.yaml").write_text(SLO)
    llm = ("--llm-ttft", "constant:400ms", "--llm-gap", "constant:10ms", "--llm-parallel", "2", "--cache", "off")
    with assistant(tmp_path / "logs", *llm, "--llm-deadline", "30s") as url:
        result = completed(
            *("capacity", url, "--from", "8", "--max", "64", "--resolution", "1"),
            *("--turns-per-step", "20", "--step-time", "8s"),
            *("--processes", "2", "--rest", "0.5", "--slo", str(tmp_path / "slo.yaml")),
            *("--out", str(tmp_path / "out"), *SPEECH),
            *("--json", str(tmp_path / "found.json")),
        )
    result_object = json.loads((tmp_path / "found.json").read_text())
    assert result_object["exit_code"] == result.returncode, result.stderr
    assert result_object["sentence"] in " ".join(result.stdout.split())
    assert (tmp_path / "out" / "capacity.svg").read_text().startswith("<svg")
    assert (tmp_path / "out" / "capacity.png").read_bytes().startswith(b"\x89PNG")
    if result.returncode == ExitCode.GENERATOR_LIMITED:
        # On a machine that stalls, the tool blames itself first: then that is the right answer.
        assert any(step["status"] == "generator-limited" for step in result_object["steps"])
        return
    assert result.returncode == ExitCode.OK
    assert any(step["turns"] and step["voice_to_voice"]["p95_s"] for step in result_object["steps"])
    assert result_object["callers_missed"] is not None
    assert result_object["callers_met"] < result_object["callers_missed"] <= 64


def test_everything_that_cannot_be_used_is_reported_at_once(tmp_path: Path) -> None:
    flags = ("--from", "0", "--max", "0", "--resolution", "2", "--turns-per-step", "3", "--out", str(tmp_path))
    result = carried_out("capacity", "http://x", *flags, cwd=tmp_path)
    assert result.returncode == ExitCode.USAGE
    for fault in (
        "--from 0",
        "--max 0",
        "--resolution 2",
        "--turns-per-step 3",
        "'http://x' is not a WebSocket address",
    ):
        assert fault in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_absent_endpoint_ends_with_5_and_leaves_reports(tmp_path: Path) -> None:
    result = completed("capacity", "ws://127.0.0.1:9/v1/realtime", "--corpus", CORPUS, "--out", str(tmp_path / "out"))
    assert result.returncode == ExitCode.UNREACHABLE
    assert "cannot connect to 127.0.0.1:9" in result.stderr
    assert {*NAMES, CAPACITY_NAME} <= {path.name for path in (tmp_path / "out").iterdir()}
