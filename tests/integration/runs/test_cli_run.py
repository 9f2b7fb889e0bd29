"""`voiceprobe run` as a person runs it: real processes, exit codes, and the files that they leave, however they end,
which state nothing that was not measured."""

import contextlib
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import numpy as np
import psutil
import pytest

from loadtest.calibration.json_object import calibration_object
from loadtest.conversation.plan import Limits
from loadtest.exit_codes import ExitCode
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.reports.junit import RUN_CASE
from loadtest.reports.summary import schema
from loadtest.run import processes
from loadtest.run.artifacts import NAMES
from loadtest.run.calibrations import fingerprint, keep
from loadtest.run.sidecars import start_sidecar
from loadtest.scenario.behavior import CallerBehavior, parse_think
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.preparation import prepare
from loadtest.swarm.planner import CallPlanner
from telemetry.model.metrics import METRIC_NAMES
from telemetry.store.reader import StoreReader
from telemetry.store.recordings.kept_call import FOLDER
from tests.integration.calling import CORPUS, assistant
from tests.integration.commands import begun, carried_out, completed_module, ended
from tests.integration.runs.expected_exit import code_by_objectives
from tests.integration.waiting import stored_turns, wait_until
from tests.unit.loadtest.calibration.calibration_material import calibration, step

QUICK = ("--corpus", CORPUS, "--length", "short", "--clips", "3", "--turns", "2", "--think", "0.1")
SEED = 7
LOCUST = ("locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--headless", "--host")
OWN_REPORT = ("--json", "again.json", "--html", "again.html", "--junit", "again.xml", "--markdown", "again.md")


@dataclass(frozen=True)
class Ended:
    """A run that has ended: where it was started, its own folder, its exit code and what it printed."""

    folder: Path
    run: Path
    code: int
    out: str


@pytest.fixture(scope="module")
def good_run(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """The one run that all tests of a good run and of its reports read. It has two processes, and an objective that no
    endpoint meets."""
    folder = tmp_path_factory.mktemp("ended")
    objectives = (processes.ROOT / "loadtest" / "run" / "demo-objectives.yaml").read_text()
    (folder / "slo.yaml").write_text(objectives.replace("threshold: 1s", "threshold: 1ms"))
    load = ("--users", "4", "--processes", "2", "--calls", "4", "--run-time", "2m", "--seed", str(SEED))
    load += ("--noise", "pink", "--snr", "20", "--cohort", "mine")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VOICEPROBE_HOME", str(folder / "home"))
        keep(calibration_object(calibration(step(10, error_ns=120_000), machine=fingerprint())))
        given = (*load, *QUICK, "--slo", "slo.yaml", "--json", "run.json")
        code, out, err = ended(begun("run", url, *given, cwd=folder))
        assert err == ""
        (run,) = (folder / "runs").iterdir()
        yield Ended(folder, run, code, out)


def left(run: Path, code: int) -> dict[str, Any]:
    """The summary of a run that left all of its files, which agree on how it ended."""
    assert all((run / name).stat().st_size for name in NAMES)
    assert not [path for path in run.iterdir() if path.name.startswith(".")], "nothing half-written"
    summary = json.loads((run / "summary.json").read_text())
    jsonschema.validate(summary, schema())
    assert summary["exit_code"] == code
    assert f"(exit code {code})" in (run / "summary.md").read_text().splitlines()[0]
    return summary


def run_case(run: Path) -> str:
    """Return the result of the run's own case in its JUnit file."""
    cases = ET.parse(run / "junit.xml").getroot().iter("testcase")  # noqa: S314 - made right here
    own = next(case for case in cases if case.get("name") == RUN_CASE)
    return next((child.tag for child in own if child.tag != "system-out"), "passed")


def test_a_run_measures_judges_and_says_so(good_run: Ended) -> None:
    summary, out = json.loads((good_run.folder / "run.json").read_text()), good_run.out
    jsonschema.validate(summary, schema())
    assert summary["exit_code"] == good_run.code
    assert good_run.code == code_by_objectives(summary) != ExitCode.OK, out
    met = {objective["name"]: objective["met"] for objective in summary["objectives"]}
    assert met["voice-to-voice"] is not True, "nobody answers within a millisecond"
    assert summary["turns"]["total"] > 0
    assert summary["turns"]["total"] == sum(summary["turns"]["by_outcome"].values())
    assert set(summary["metrics"]) == set(METRIC_NAMES)
    # Without a valid turn, where the machine paused in every one, there is no verdict; else it took 0.3 s at least.
    assert (summary["metrics"]["voice_to_voice"]["p50_s"] is None) == (summary["turns"]["ok"] == 0)
    assert (summary["metrics"]["voice_to_voice"]["p50_s"] or 1.0) > 0.3
    assert {objective["name"] for objective in summary["objectives"]} >= {"voice-to-voice", "good-turns"}
    assert summary["telemetry"]["missing"] == 0
    assert [cohort["name"] for cohort in summary["cohorts"]] == ["mine"]
    assert summary["generator"]["pacer"] == "thread"
    assert summary["generator"]["receive_stamp"] == "kernel"
    assert "Voice to voice" in out
    assert "How well this was measured" in out
    cited = "calibrated to ±0.12 ms at 10 callers on 2026-11-21, plus the error of the clips' speech bounds"
    assert summary["generator"]["calibration"]["sentence"] == cited
    assert cited in " ".join(out.split())
    # What the clips state of their bounds has come all the way, and what turns state of their own with it.
    assert summary["speech_bounds"]["turns_unknown"] == 0
    within = summary["metrics"]["voice_to_voice"]["measured_within"]
    assert within["turns_unknown"] == 0
    if summary["turns"]["ok"]:
        low, high = within["p50_s"]
        assert low <= summary["metrics"]["voice_to_voice"]["p50_s"] <= high
    with StoreReader(good_run.run / "store") as reader:
        (declared,) = (known.declared for known in reader.runs())
    assert (declared["calibration"], declared["calibrated_to_ms"]) == (cited, "0.12")


def planned_by_one_process(url: str, calls: int) -> Counter[str]:
    settings = SwarmSettings(host=url, corpus=CORPUS, length="short", clips=3, seed=SEED)
    prepared = prepare(settings, registry.make_caller(settings.protocol, CallerOptions()))
    behavior = CallerBehavior(turns=2, think=parse_think(0.1))
    planner = CallPlanner(prepared.lines, behavior=behavior, limits=Limits(), manual_turns=False, seed=settings.seed)
    plans = [planner.plan("call") for _ in range(calls)]
    return Counter(turn.clip.rendered.utterance.id for plan in plans for turn in plan.turns)


def test_two_processes_say_and_measure_what_one_would(good_run: Ended, url: str) -> None:
    summary, out = json.loads((good_run.folder / "run.json").read_text()), " ".join(good_run.out.split())
    with StoreReader(good_run.run / "store") as reader:
        turns = reader.turns(source="client")
        first, second = reader.processes(good_run.run.name)
        assert [run.ended for run in reader.runs()] == [True]
    assert Counter(turn.utterance_id for turn in turns) == planned_by_one_process(url, 4), out
    assert Counter(turn.outcome_observed or turn.outcome for turn in turns) == {"ok": 8}
    assert summary["turns"]["total"] == 8
    assert (summary["generator"]["processes"], summary["generator"]["processes_lost"]) == (2, 0)
    assert "all 2 ended as they should" in out
    values = [turn.first_audio_perf_ns - turn.speech_end_perf_ns for turn in turns if turn.outcome == "ok"]
    metric = summary["metrics"]["voice_to_voice"]
    assert metric["n"] == len(values)
    if values:
        assert metric["p50_s"] == pytest.approx(np.percentile(values, 50) / 1e9, abs=1e-12)
        assert metric["max_s"] == max(values) / 1e9
    assert {first.worker, second.worker} == {"1 of 2", "2 of 2"}
    assert (first.turns, second.turns) == (4, 4)


def test_run_leaves_reports_and_report_command_gives_the_same(good_run: Ended) -> None:
    summary = left(good_run.run, good_run.code)
    assert summary["run"]["id"] == good_run.run.name
    assert good_run.out.rstrip().endswith(f"report: runs/{good_run.run.name}/report.html")
    progress = re.search(r"^ +\d+ s: . of 4 on a call; turns ", good_run.out, re.MULTILINE)
    assert progress or summary["run"]["elapsed_s"] < 10
    assert not (good_run.run / "store" / FOLDER).exists(), "nobody asked for kept calls"
    files = [path for path in good_run.run.rglob("*") if path.is_file()]
    assert not [path for path in files if path.read_bytes()[:4] in (b"fLaC", b"RIFF", b"OggS")]
    again = carried_out("report", *OWN_REPORT, cwd=good_run.folder)
    assert (again.returncode, again.stderr) == (good_run.code, "")
    assert again.stdout.startswith(f"run {summary['run']['id']} in runs/{good_run.run.name}\n"), (
        "the newest run of the folder runs"
    )
    for name, own in zip(NAMES, ("again.json", "again.html", "again.xml", "again.md"), strict=True):
        assert (good_run.folder / own).read_bytes() == (good_run.run / name).read_bytes(), name
    by_id = carried_out("report", summary["run"]["id"], cwd=good_run.folder)
    assert by_id.returncode == good_run.code


def reported(folder: Path, store: Path, *flags: str) -> tuple[str, dict[str, Any]]:
    """Return the output of a report of a store, and its summary."""
    done = carried_out("report", "--store", str(store), *flags, "--json", "reported.json", cwd=folder)
    summary = json.loads((folder / "reported.json").read_text())
    jsonschema.validate(summary, schema())
    assert (done.stderr, summary["exit_code"]) == ("", done.returncode)
    return done.stdout, summary


def test_a_report_of_the_store_gives_the_verdict_of_the_run(good_run: Ended) -> None:
    of_run = json.loads((good_run.folder / "run.json").read_text())
    out, of_store = reported(good_run.folder, good_run.run / "store", "--slo", "slo.yaml")
    assert of_run["telemetry"].pop("spooled") is not None
    assert of_store["telemetry"].pop("spooled") is None, "a store does not know what waits in a spool"
    assert of_store == of_run
    assert (of_run["run"]["users"], of_run["run"]["run_time_s"], of_run["run"]["seed"]) == (4, 120.0, SEED)
    assert of_run["run"]["profile"] == {"noise": "pink", "snr_db": 20.0, "length": "short", "channel": "clean"}
    assert of_run["run"]["corpus"]["licenses"]
    assert of_run["turns"]["total"] > 0
    first_line, rest = out.split("\n", 1)
    assert first_line == f"run {of_run['run']['id']} of {good_run.run / 'store'} (the only one)"
    # Only `run` knows what had to be delivered from the spool, which happens on a busy machine.
    printed = re.sub(r", [\w ()]+? delivered from the spool after the run", "", " ".join(good_run.out.split()))
    assert " ".join(rest.split()) in printed, "the same text, word for word"


@pytest.mark.nightly
def test_a_swarm_of_plain_locust_gets_a_verdict(url: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    child, sidecar = start_sidecar(store, tmp_path / "logs", slo=None)
    with processes.ending(child):
        swarm = completed_module(
            *(*LOCUST, url),
            *("--users", "3", "--spawn-rate", "10", "--run-time", "6s", "--stop-timeout", "10"),
            *("--processes", "2", "--sidecar", sidecar.url, *QUICK),
        )
        # It knows no objectives: that a verdict is missed or undecided is not in it.
        assert swarm.returncode in (0, 1), swarm.stderr
        # The sidecar still writes: a report needs nobody to stop.
        out, of_store = reported(tmp_path, store)
    assert of_store["exit_code"] == code_by_objectives(of_store) != ExitCode.OK, out
    assert of_store["run"]["state"] == "ended"
    assert (of_store["run"]["users"], of_store["run"]["run_time_s"], of_store["run"]["target"]) == (3, 6.0, url)
    assert of_store["generator"]["processes"] == 2
    assert of_store["generator"]["processes_lost"] == 0
    assert of_store["telemetry"]["missing"] == 0
    assert of_store["generator"]["calibration"] is None, "nobody looked"
    done = carried_out("report", "--store", str(store), "--list", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert of_store["run"]["id"] in done.stdout
    assert "ended" in done.stdout


def test_target_dead_before_first_call_is_in_every_report(tmp_path: Path) -> None:
    ended = carried_out("run", "ws://127.0.0.1:9", *QUICK, "--json", "own.json", cwd=tmp_path)
    code, out = ended.returncode, ended.stdout
    why = "cannot connect to 127.0.0.1:9: Connection refused"
    assert (code, ended.stderr) == (ExitCode.UNREACHABLE, f"voiceprobe: {why}\n")
    (run,) = (tmp_path / "runs").iterdir()
    assert "is kept in" not in out, "the reports are all there is"
    assert out.endswith(f"report: runs/{run.name}/report.html\n")
    summary = left(run, code)
    assert summary["run"]["id"] == run.name
    assert json.loads((tmp_path / "own.json").read_text()) == summary
    assert summary["verdict"] == {"state": "not_judged", "sentence": f"Not judged: {why}"}
    assert all(why in (run / name).read_text() for name in NAMES)
    assert run_case(run) == "failure"
    done = carried_out("runs", "--json", "runs.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (listed,) = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert (listed["state"], listed["fault"]) == ("unreachable", None)
    assert listed["sentence"] == summary["verdict"]["sentence"]


@pytest.mark.nightly
def test_a_run_that_is_interrupted_twice_leaves_its_reports(url: str, tmp_path: Path) -> None:
    run = tmp_path / "out"
    process = begun("run", url, "--users", "3", "--run-time", "10m", *QUICK, "--out", str(run), cwd=tmp_path)
    wait_until(lambda: stored_turns(run / "store") >= 2)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("stopping"):
            break
    process.send_signal(signal.SIGTERM)
    code, _, err = ended(process)
    assert (code, err) == (ExitCode.INTERRUPTED, "")
    left(run, code)
    assert run_case(run) == "error"


@pytest.mark.nightly
def test_a_service_that_vanishes_is_in_every_report(tmp_path: Path) -> None:
    run = tmp_path / "out"
    with assistant(tmp_path / "logs") as url:
        process = begun("run", url, "--users", "3", "--run-time", "10m", *QUICK, "--out", str(run), cwd=tmp_path)
        wait_until(lambda: stored_turns(run / "store") >= 2)
        heard = stored_turns(run / "store")
    # Calls under way are cut off, and each further one fails to connect.
    wait_until(lambda: stored_turns(run / "store") >= heard + 4)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert (code, err) == (ExitCode.INTERRUPTED, "")
    summary = left(run, code)
    assert summary["failures"]
    assert "Why turns failed" in (run / "report.html").read_text()
    assert "### Why turns failed" in (run / "summary.md").read_text()


@pytest.mark.nightly
def test_a_run_without_a_turn_leaves_reports_that_claim_nothing(url: str, tmp_path: Path) -> None:
    run = tmp_path / "out"
    load = ("--users", "1", "--run-time", "1s", "--think", "60")
    code, _, _ = ended(begun("run", url, *load, *QUICK[:-2], "--out", str(run), cwd=tmp_path))
    summary = left(run, code)
    assert summary["run"]["id"] != run.name, "a folder that is given may hold another run"
    assert summary["turns"]["ok"] == 0
    assert code in (ExitCode.GENERATOR_LIMITED, ExitCode.UNDECIDED)
    assert run_case(run) in ("error", "skipped")
    page, text = (run / "report.html").read_text(), (run / "summary.md").read_text()
    assert 'class="chip met"' not in page
    assert 'class="verdict met"' not in page
    assert "| ✅" not in text


def test_a_run_that_is_interrupted_keeps_its_results(url: str, tmp_path: Path) -> None:
    file, out = tmp_path / "summary.json", tmp_path / "out"
    process = begun("run", url, "--users", "2", "--run-time", "10m", *QUICK, "--out", str(out), "--json", str(file))
    wait_until(lambda: stored_turns(out / "store") >= 2)
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
    wait_until(lambda: stored_turns(out / "store") >= 1)
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
    code, output, _ = ended(begun("run", url, *QUICK, *load, "--out", "out", "--json", str(file), cwd=tmp_path))
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
        process = begun("run", url, *QUICK, *load, "--out", "out", "--json", str(file), cwd=tmp_path)
        wait_until(lambda: stored_turns(tmp_path / "store") >= 2)
        os.kill(child.process.pid, signal.SIGKILL)
        code, output, _ = ended(process)
    summary = json.loads(file.read_text())
    assert code == code_by_objectives(summary) != ExitCode.OK, output
    assert summary["telemetry"]["missing"] == 0, summary["telemetry"]
    assert summary["telemetry"]["received"] == summary["turns"]["total"] + summary["ramp_turns"]
    assert summary["turns"]["total"] + summary["ramp_turns"] == 8 * 2, "the run went on without its sidecar"


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
    code, _, err = ended(begun("run", url, *QUICK, *load, *profiles, "--out", "out", cwd=tmp_path))
    heard = (ExitCode.OK, ExitCode.UNDECIDED, ExitCode.OBJECTIVE_MISSED, ExitCode.GENERATOR_LIMITED)
    assert (code in heard, err) == (True, "")
    with StoreReader(tmp_path / "out" / "store") as reader:
        labels = [(turn.noise_profile, turn.channel_profile) for turn in reader.turns(source="client")]
    # Of each hundred calls, fifty have each profile; the seed decides which of the first twelve do.
    assert set(labels) == {("babble", "clean"), ("clean", "telephone")}
