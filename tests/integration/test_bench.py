"""The benchmark's parts really run and agree with one another; how fast they are decides nothing here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtest.run.processes import ROOT
from tests.benchmarks.bench import certificate
from tests.benchmarks.bench.cases import DUPLEX, NAIVE, OURS, Case
from tests.benchmarks.bench.native import Native
from tests.benchmarks.bench.processes import Cores, PartFailedError, finish, serving, start
from tests.benchmarks.bench.senders import BenchSetup
from tests.integration.provoking import TRIES

pytestmark = pytest.mark.nightly

STAGES_OF_A_TURN = 3


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, "-m", "tests.benchmarks.bench", "--short", "--markdown"]
    done = subprocess.run(
        [*command, "--json", str(folder / "bench.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{done.stderr}")  # shown, and no figure in it decides a test
    result = json.loads((folder / "bench.json").read_text())
    return {**result, "output": done.stdout}


def test_every_sender_has_figures_that_its_peer_confirms(short: dict[str, Any]) -> None:
    trials = short["trials"]
    senders = {trial["sender"] for trial in trials}
    assert senders >= {"ours", "naive"}
    for trial in trials:
        found = trial["figures"]
        assert trial["failed"] is None
        assert found["sent"] <= found["peer_received"] <= found["sent_ever"] + found["callers"]
        if found["lateness_p50_ms"] is not None:  # too little was sent to say
            assert found["lateness_p50_ms"] <= found["lateness_p99_ms"] <= found["lateness_max_ms"]
            assert found["never_sent_share"] == pytest.approx(max(0, 1 - found["sent"] / found["due"]))
        if trial["case"]["mode"] != "duplex":
            assert found["peer_sent"] == found["received"] == 0
    # The machine may have paused for the whole of one short window; not of all.
    for sender in ("ours", "naive"):
        own = [trial for trial in trials if trial["sender"] == sender]
        duplex = [trial for trial in own if trial["case"]["mode"] == "duplex"]
        assert any(trial["figures"]["sent"] and trial["figures"]["cpu_us_per_frame"] for trial in own)
        assert any(trial["figures"]["peer_sent"] and trial["figures"]["received"] for trial in duplex)


def test_a_target_stands_beside_what_was_found(short: dict[str, Any]) -> None:
    targets = {verdict["target"]: verdict for verdict in short["targets"]}
    assert any("naive locustfile" in target for target in targets)
    assert all(verdict["met"] in (True, False) for verdict in targets.values() if verdict["found"] != "–")
    for target, verdict in targets.items():
        assert f"| {target} | {verdict['found']} |" in short["output"]


def test_conversations_of_both_kinds_of_callers_have_figures(short: dict[str, Any]) -> None:
    trials = short["conversation_trials"]
    assert [trial["sender"] for trial in trials] == ["control", "ours"]
    for trial in trials:
        found = trial["figures"]
        assert trial["failed"] is None
        assert (found["missing"], found["unanswered"]) == (0, 0)
        assert found["turns"] == found["error"]["turns"] + found["error"]["unsure"] + found["invalid"] > 0


def test_telemetry_delivers_every_span_that_it_is_charged_for(short: dict[str, Any]) -> None:
    found = short["telemetry"]
    assert found["outcome"] == "ok"
    assert found["spans_lost"] == 0
    assert found["spans_exported"] == found["turns"] * (1 + STAGES_OF_A_TURN)
    assert found["requests"] > 0
    assert min(found[f"{step}_us"] for step in ("build", "emit", "events", "export")) > 0


def test_both_kinds_of_stamps_are_held_against_the_truth(short: dict[str, Any]) -> None:
    assert {error["kind"] for error in short["stamps"]} == {"kernel", "user"}
    for error in short["stamps"]:
        assert error["messages"] > 0
        assert 0 < error["p50_ms"] <= error["p99_ms"] <= error["max_ms"]


def test_the_result_says_where_it_was_taken(short: dict[str, Any]) -> None:
    assert {"cpu", "cores", "kernel", "python", "libraries"} <= short["machine"].keys()
    assert all(short["machine"][name] for name in ("cpu", "cores", "kernel", "python"))


@pytest.mark.parametrize(("sender", "wire"), [(OURS, "ws"), (NAIVE, "wss")])
def test_a_peer_in_python_takes_the_place_of_the_one_in_c(sender: str, wire: str, tmp_path: Path) -> None:
    secured = certificate.make(tmp_path)
    bench = BenchSetup(tmp_path, Native(None, None, None, ()), Cores(None, None), 0.2, 0.4, secured)
    bench.prepare()
    for _ in range(TRIES):
        found = bench.measure(sender, Case(5, DUPLEX, wire))
        if found.received > 0:  # else the machine paused for the whole of the window
            break
    assert 0 < found.sent <= found.peer_received <= found.sent_ever + found.callers
    assert found.received > 0
    assert bench.senders(Case(5, DUPLEX, wire)) == (OURS, NAIVE)


def test_a_part_that_fails_says_so_in_its_own_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such caller')"]
    with pytest.raises(PartFailedError, match="the sender ended with code 1: no such caller"):
        finish("sender", start(command, None, tmp_path / "log"), 30, tmp_path / "log")
    with (
        pytest.raises(PartFailedError, match="the peer did not start: no such caller"),
        serving("peer", command, None, tmp_path / "log2"),
    ):
        pass
