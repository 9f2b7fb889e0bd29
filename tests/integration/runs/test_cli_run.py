"""`voiceprobe run` as a person runs it: real processes, exit codes, and what is kept when things go wrong."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from loadtest.exit_codes import ExitCode
from loadtest.run import processes
from loadtest.run.sidecars import start_sidecar
from telemetry.store.reader import StoreReader
from tests.integration.calling import CORPUS, assistant
from tests.integration.commands import begun, carried_out, completed_module, ended
from tests.integration.runs.expected_exit import code_by_objectives
from tests.integration.waiting import stored_turns as _turns
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.slow

LOCUST = ("locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--headless", "--host")
QUICK = ["--corpus", CORPUS, "--length", "short", "--clips", "6", "--think", "0.2", "--endpointing", "300ms"]


def test_a_run_that_is_interrupted_keeps_its_results(url: str, tmp_path: Path) -> None:
    file, out = tmp_path / "summary.json", tmp_path / "out"
    process = begun("run", url, "--users", "2", "--run-time", "10m", *QUICK, "--out", str(out), "--json", str(file))
    wait_until(lambda: _turns(out / "store") >= 2)
    process.send_signal(signal.SIGINT)
    code, output, err = ended(process)
    assert (code, err) == (ExitCode.INTERRUPTED, "")
    summary = json.loads(file.read_text())
    assert summary["exit_code"] == 130
    assert summary["turns"]["total"] >= 2
    assert summary["telemetry"]["missing"] == 0
    assert "stopping" in output


@pytest.mark.nightly
def test_a_generator_that_is_stopped_blames_itself(url: str, tmp_path: Path) -> None:
    file, out = tmp_path / "summary.json", tmp_path / "out"
    process = begun("run", url, "--users", "4", "--run-time", "22s", *QUICK, "--out", str(out), "--json", str(file))
    wait_until(lambda: _turns(out / "store") >= 1)
    swarm = next(
        child for child in psutil.Process(process.pid).children(recursive=True) if "locust" in " ".join(child.cmdline())
    )
    with contextlib.suppress(psutil.NoSuchProcess):  # a slow machine may have come to the end of the run already
        for _ in range(8):
            swarm.suspend()
            time.sleep(0.3)  # this is the provocation itself
            swarm.resume()
            time.sleep(1.0)
    code, output, _ = ended(process)
    summary = json.loads(file.read_text())
    invalid = summary["turns"]["invalid"]
    assert invalid > 0
    assert code == code_by_objectives(summary), output
    of_turns = [
        objective for objective in summary["objectives"] if objective["counts"] == "turns" and objective["eligible"]
    ]
    # On a starved machine, further turns are open whose intervals hold a threshold.
    assert all(of_turn["open"].get("generator", 0) >= invalid for of_turn in of_turns), "none of them is good or bad"
    assert "frame lateness" in summary["turns"]["invalid_by_reason"]
    # That turns which were not touched stay valid is shown in test_validity, where the machine's own pauses are known.


@pytest.mark.nightly
def test_unreachable_sidecar_does_not_disturb_run(url: str, tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    load = ("--users", "3", "--calls", "3", "--turns", "1", "--sidecar", "http://127.0.0.1:9")
    code, output, _ = ended(begun("run", url, *load, *QUICK, "--out", "out", "--json", str(file), cwd=tmp_path))
    summary = json.loads(file.read_text())
    assert code == code_by_objectives(summary) != ExitCode.OK, output
    assert summary["turns"]["total"] + summary["ramp_turns"] == 3
    assert summary["telemetry"]["missing"] == 0
    kept = summary["telemetry"]["spooled"]
    assert kept["turns"] == summary["telemetry"]["received"]
    assert kept["spans"] > kept["turns"]
    assert (kept["waiting_turns"], kept["waiting_spans"]) == (0, 0)


@pytest.mark.nightly
def test_a_sidecar_that_is_killed_in_a_run_loses_nothing(url: str, tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    child, sidecar = start_sidecar(tmp_path / "store", tmp_path / "logs", slo=None)
    with processes.ending(child):
        load = ("--users", "4", "--calls", "8", "--turns", "2", "--sidecar", sidecar.url)
        process = begun("run", url, *load, *QUICK, "--out", "out", "--json", str(file), cwd=tmp_path)
        wait_until(lambda: _turns(tmp_path / "store") >= 2)
        os.kill(child.process.pid, signal.SIGKILL)
        code, output, _ = ended(process)
    summary = json.loads(file.read_text())
    assert code == code_by_objectives(summary) != ExitCode.OK, output
    assert summary["telemetry"]["missing"] == 0, summary["telemetry"]
    assert summary["telemetry"]["received"] == summary["turns"]["total"] + summary["ramp_turns"]
    assert summary["turns"]["total"] + summary["ramp_turns"] == 8 * 2, "the run went on without its sidecar"


@pytest.mark.nightly
def test_a_target_that_opens_no_session_ends_with_5(tmp_path: Path) -> None:
    with assistant(tmp_path / "logs", "--fault", "half-open") as url:
        code, _, err = ended(begun("run", url, "--users", "1", *QUICK, "--out", str(tmp_path / "out")))
    assert code == ExitCode.UNREACHABLE
    assert "did not open a session" in err
    assert "Traceback" not in err


def test_a_host_that_cannot_be_found_is_named_in_one_line(tmp_path: Path) -> None:
    done = carried_out("run", "ws://no-such-host.invalid/v1/realtime", *QUICK, "--out", "out", cwd=tmp_path)
    assert done.returncode == ExitCode.UNREACHABLE
    (line,) = done.stderr.splitlines()
    assert "no-such-host.invalid" in line


def test_invalid_flags_are_reported_at_once_and_nothing_written(tmp_path: Path) -> None:
    flags = "--protocol smoke --noise pinkk --snr 3 --users 0 --corpus nowhere --out out"
    done = carried_out("run", "http://127.0.0.1:1", *flags.split(), cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("voiceprobe: ") for line in lines)
    assert not (tmp_path / "out").exists()


def test_plain_locust_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    flags = ("--noise", "pinkk", "--snr", "3", "--users", "1", "--run-time", "5s")
    done = completed_module(*LOCUST, "ftp://x", *flags, cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "voiceprobe: 'ftp://x' is not a WebSocket address" in done.stderr
    assert "pinkk" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_each_call_is_recorded_with_profile_it_was_spoken_over(url: str, tmp_path: Path) -> None:
    profiles = ["--profile", "noise=babble snr=20 share=50%; channel=telephone share=50%"]
    load = ("--users", "4", "--calls", "12", "--turns", "1")
    code, _, err = ended(begun("run", url, *load, *QUICK, *profiles, "--out", "out", cwd=tmp_path))
    heard = (ExitCode.OK, ExitCode.UNDECIDED, ExitCode.OBJECTIVE_MISSED, ExitCode.GENERATOR_LIMITED)
    assert (code in heard, err) == (True, "")
    with StoreReader(tmp_path / "out" / "store") as reader:
        labels = [(turn.noise_profile, turn.channel_profile) for turn in reader.turns(source="client")]
    # Of each hundred calls, fifty have each profile; the seed decides which of the first twelve do.
    assert set(labels) == {("babble", "clean"), ("clean", "telephone")}
