"""`voiceprobe report` of real runs: what `run` says of a store, said again from the store alone."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from loadtest.exit_codes import ExitCode
from loadtest.reports.summary import schema
from loadtest.run import processes
from loadtest.run.sidecars import start_sidecar
from tests.integration.calling import CORPUS, assistant
from tests.integration.commands import completed_module
from tests.integration.expected_exit import code_by_objectives

SPEECH = ("--corpus", str(CORPUS), "--clips", "3", "--turns", "2", "--think", "0.1")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with assistant(tmp_path_factory.mktemp("logs"), "--llm-ttft", "constant:80ms") as url:
        yield url


def _report(store: Path, file: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = completed_module("loadtest.cli.main", "report", "--store", str(store), "--json", str(file), *arguments)
    assert done.stderr == ""
    found = json.loads(file.read_text())
    jsonschema.validate(found, schema())
    assert found["exit_code"] == done.returncode
    return done, found


@pytest.mark.nightly
def test_report_gives_the_verdict_of_the_run(url: str, tmp_path: Path) -> None:
    out, first, again = tmp_path / "out", tmp_path / "run.json", tmp_path / "report.json"
    load = ("--users", "3", "--run-time", "6s", "--noise", "pink", "--snr", "20", "--cohort", "mine", "--seed", "7")
    ran = completed_module("loadtest.cli.main", "run", url, *load, *SPEECH, "--out", str(out), "--json", str(first))
    assert ran.stderr == ""
    output = json.loads(first.read_text())
    reported, found = _report(out / "store", again)
    assert output["telemetry"].pop("spooled") is not None
    assert found["telemetry"].pop("spooled") is None, "a store does not know what waits in a spool"
    assert found == output
    assert (output["run"]["users"], output["run"]["run_time_s"], output["run"]["seed"]) == (3, 6.0, 7)
    assert output["run"]["profile"] == {"noise": "pink", "snr_db": 20.0, "length": None, "channel": "clean"}
    assert output["run"]["corpus"]["licenses"]
    assert output["turns"]["total"] > 0
    first_line, rest = reported.stdout.split("\n", 1)
    assert first_line == f"run {output['run']['id']} of {out / 'store'} (the only one)"
    # Only `run` knows what had to be delivered from the spool, which happens on a busy machine.
    printed = re.sub(r", [\w ()]+? delivered from the spool after the run", "", _on_one_line(ran.stdout))
    assert _on_one_line(rest) in printed, "the same text, word for word"


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.nightly
def test_a_swarm_of_plain_locust_gets_a_verdict(url: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    child, sidecar = start_sidecar(store, tmp_path / "logs", slo=None)
    with processes.ending(child):
        swarm = completed_module(
            *("locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--headless", "--host", url),
            *("--users", "3", "--spawn-rate", "10", "--run-time", "6s", "--stop-timeout", "10"),
            *("--processes", "2", "--sidecar", sidecar.url, *SPEECH),
        )
        # It knows no objectives: that a verdict is missed or undecided is not in it.
        assert swarm.returncode in (0, 1), swarm.stderr
        # The sidecar still writes: a report needs nobody to stop.
        done, found = _report(store, tmp_path / "report.json")
    assert done.returncode == code_by_objectives(found) != ExitCode.OK, done.stdout
    assert found["run"]["state"] == "ended"
    assert (found["run"]["users"], found["run"]["run_time_s"], found["run"]["target"]) == (3, 6.0, url)
    assert found["generator"]["processes"] == 2
    assert found["generator"]["processes_lost"] == 0
    assert found["telemetry"]["missing"] == 0
    assert found["generator"]["calibration"] is None, "nobody looked"
    listed = completed_module("loadtest.cli.main", "report", "--store", str(store), "--list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert found["run"]["id"] in listed.stdout
    assert "ended" in listed.stdout
