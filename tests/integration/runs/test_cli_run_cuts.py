"""Every turn that an endpoint was asked is in the store, however the run comes to its end."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from loadtest.reports.summary import schema
from telemetry.model.turns import Turn
from telemetry.store.reader import StoreReader
from tests.integration.calling import CORPUS
from tests.integration.commands import begun, ended
from tests.integration.quick_endpoint import QuickEndpoint, quick_endpoint

QUICK = ["--corpus", CORPUS, "--length", "short", "--clips", "6", "--think", "0.2", "--manual-turns", "--users", "4"]


def _start(endpoint: QuickEndpoint, out: Path, *arguments: str) -> subprocess.Popen[str]:
    return begun("run", endpoint.url, *QUICK, "--out", str(out), "--json", str(out / "s.json"), *arguments)


def _turns(out: Path) -> list[Turn]:
    with StoreReader(out / "store") as reader:
        return reader.turns(source="client", limit=10_000)


def _came_out(process: subprocess.Popen[str], out: Path) -> tuple[str, dict[str, Any]]:
    _, output, err = ended(process)
    assert (out / "s.json").exists(), output + err
    summary = json.loads((out / "s.json").read_text())
    jsonschema.validate(summary, schema())
    return output, summary


def _all_there(endpoint: QuickEndpoint, out: Path, summary: dict[str, Any]) -> list[Turn]:
    """The turns that were cut. Who was still speaking has asked nothing yet, and is recorded as well."""
    turns = _turns(out)
    assert sum(turn.speech_end_perf_ns is not None for turn in turns) == endpoint.questions
    cut = [turn for turn in turns if turn.outcome == "cut" or turn.outcome_observed == "cut"]
    assert all(turn.hangup_perf_ns is not None and turn.cut_by for turn in cut)
    assert summary["telemetry"]["missing"] == 0
    return cut


@pytest.mark.nightly
@pytest.mark.parametrize(("stop_timeout", "count"), [("1", "1"), ("0", "2")])
def test_turns_cut_by_stop_timeout_are_recorded_and_shown(stop_timeout: str, count: str, tmp_path: Path) -> None:
    with quick_endpoint(replies="endless") as endpoint:
        stop = ["--run-time", "7s", "--stop-timeout", stop_timeout, "--processes", count]
        output, summary = _came_out(_start(endpoint, tmp_path, *stop), tmp_path)
        cut = _all_there(endpoint, tmp_path, summary)
    assert len(cut) == 4, "each caller was hearing a reply without an end"
    assert {turn.cut_by for turn in cut} == {f"the stop time-out of {stop_timeout} s"}
    valid = [turn for turn in cut if turn.outcome == "cut"]
    assert summary["turns"]["cut"] == len(valid)
    if valid:
        assert "before the end, by the stop time-out of" in " ".join(output.split())


@pytest.mark.nightly
def test_runs_of_several_processes_at_the_same_time_stay_apart(tmp_path: Path) -> None:
    with quick_endpoint() as first, quick_endpoint() as second:
        places = [(first, tmp_path / "first"), (second, tmp_path / "second")]
        flags = ["--processes", "2", "--calls", "4", "--turns", "2"]
        running = []
        for endpoint, out in places:
            out.mkdir()
            running.append(_start(endpoint, out, *flags))
        for process, (endpoint, out) in zip(running, places, strict=True):
            _, summary = _came_out(process, out)
            assert summary["run"]["target"] == endpoint.url
            assert len(_turns(out)) == endpoint.questions == 8


@pytest.mark.nightly
def test_an_interrupted_run_records_what_it_cuts(tmp_path: Path) -> None:
    with quick_endpoint(replies="plain,silent") as endpoint:
        process = _start(endpoint, tmp_path, "--run-time", "2m", "--stop-timeout", "1", "--reply-timeout", "60")
        deadline = time.monotonic() + 150
        while endpoint.questions < 8 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, summary = _came_out(process, tmp_path)
        cut = _all_there(endpoint, tmp_path, summary)
    assert summary["exit_code"] == 130
    assert len(cut) == 4
    assert all("of waiting for an answer" in (turn.outcome_reason or "") for turn in cut)
