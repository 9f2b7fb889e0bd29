"""Phases and open arrivals as a person runs them: real processes, and the store asked what happened."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import psutil
import pytest

from loadtest.exit_codes import ExitCode
from loadtest.reports.summary import schema
from loadtest.run import processes
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.integration.calling import CORPUS, assistant
from tests.integration.commands import completed
from tests.integration.waiting import answers, wait_until

QUICK = ["--corpus", CORPUS, "--length", "short", "--clips", "4", "--think", "0.1", "--endpointing", "200ms"]
EXAMPLE = Path(__file__).parents[3] / "examples" / "objectives.yaml"
SECOND_NS = 1_000_000_000
HEARD = "voice_to_voice (of the answered)"  # a row of Locust's page: it knows nothing of other turns
SCENARIO = """
name = "three"

[callers]
turns = 3

[[phases]]
name = "few"
kind = "hold"
duration = "4s"
users = 3

[[phases]]
name = "up"
kind = "ramp"
duration = "3s"
users = { to = 6 }

[[phases]]
name = "many"
kind = "spike"
duration = "4s"
users = 6
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with assistant(tmp_path_factory.mktemp("assistant")) as running:
        yield running


@pytest.fixture(scope="module")
def slow_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An assistant that thinks for three seconds."""
    with assistant(tmp_path_factory.mktemp("slow-assistant"), "--llm-ttft", "constant:3s") as running:
        yield running


def _run(url: str, tmp_path: Path, *flags: str) -> tuple[int, dict[str, Any], list[Turn]]:
    file, out = tmp_path / "summary.json", tmp_path / "out"
    done = completed("run", url, *QUICK, *flags, "--out", str(out), "--json", str(file))
    assert file.exists(), done.stdout + done.stderr
    summary = json.loads(file.read_text())
    jsonschema.validate(summary, schema())
    with StoreReader(out / "store") as reader:
        return done.returncode, summary, reader.turns(Filter(), source="client")


@pytest.mark.nightly
def test_a_run_follows_its_phases_and_judges_no_ramp(url: str, tmp_path: Path) -> None:
    scenario = tmp_path / "three.toml"
    scenario.write_text(SCENARIO)
    _, summary, turns = _run(url, tmp_path, "--scenario", str(scenario))
    assert (summary["run"]["scenario"], summary["run"]["users"], summary["run"]["run_time_s"]) == ("three", 6, 11.0)
    phases = {phase["name"]: phase for phase in summary["phases"]}
    assert [(phase["name"], phase["kind"], phase["judged"]) for phase in summary["phases"]] == [
        ("few", "hold", True),
        ("up", "ramp", False),
        ("many", "spike", True),
    ]
    for name, phase in phases.items():
        began = [turn for turn in turns if turn.phase == name]
        assert phase["turns"]["total"] == len(began) > 0
        assert {turn.scenario for turn in began} == {"three"}
    assert summary["turns"]["total"] == phases["few"]["turns"]["total"] + phases["many"]["turns"]["total"]
    assert summary["ramp_turns"] == phases["up"]["turns"]["total"]
    assert summary["starts"] is None
    callers = {name: {turn.call_id for turn in turns if turn.phase == name} for name in phases}
    assert len(callers["few"]) >= 2
    assert max(turn.turn_index for turn in turns) <= 2


OPEN = """
name = "open"
max_calls = 6

[callers]
turns = 1

[[phases]]
name = "some"
kind = "hold"
duration = "3s"
rate = 1
arrival = "constant"

[[phases]]
name = "crowd"
kind = "spike"
duration = "2s"
rate = 5
arrival = "constant"
"""


@pytest.mark.nightly
def test_calls_begin_when_due_and_those_over_limit_are_counted(slow_url: str, tmp_path: Path) -> None:
    scenario, patient = tmp_path / "open.toml", tmp_path / "patient.yaml"
    scenario.write_text(OPEN)
    # Objectives that the slow assistant meets: what then keeps calls from beginning is our own limit.
    patient.write_text(re.sub(r"threshold: \S+", "threshold: 30s", EXAMPLE.read_text()))
    flags = ["--scenario", str(scenario), "--slo", str(patient), "--processes", "2", "--calls", "12"]
    code, summary, turns = _run(slow_url, tmp_path, *flags)
    some, crowd = summary["phases"]
    assert (some["name"], some["starts"]["planned"], some["starts"]["started"]) == ("some", 3, 3)
    assert (crowd["name"], crowd["starts"]["planned"]) == ("crowd", 9), "the last of ten is beyond --calls"
    assert crowd["starts"]["started"] + crowd["starts"]["dropped"] == 9
    assert crowd["starts"]["dropped"] >= 1, "a call of more than three seconds leaves no room for all of them"
    starts = summary["starts"]
    assert starts["started"] == len({turn.call_id for turn in turns})
    assert summary["run"]["arrivals"] == "constant"
    assert len({turn.process_id for turn in turns}) == 2
    # The first process began the calls at 0 s and 2 s; the answer to the first came later than three seconds.
    first, second = sorted((t for t in turns if _process_of_the_first(turns) == t.process_id), key=_intended_ns)[:2]
    assert first.first_audio_perf_ns is not None
    assert _intended_ns(second) < first.first_audio_perf_ns
    assert all(turn.start_late_ns is not None and turn.start_late_ns >= 0 for turn in turns)
    # Late is who begins late; a machine that pauses between that and the connection, which is among the lags of the
    # loop, makes more turns late than calls.
    late_ns = [turn.start_late_ns or 0 for turn in turns]
    paused_ns = max(turn.loop_lag_worst_ns or 0 for turn in turns)
    surely = sum(late - paused_ns > 100_000_000 for late in late_ns)
    assert surely <= starts["late"] <= sum(late > 10_000_000 for late in late_ns)
    for turn in turns:
        assert turn.connect_ns is None or turn.connect_ns > (turn.start_late_ns or 0), "from the intended start"
    # A dropped call is an open turn of each objective; what is too little for a verdict is so without them, too.
    assert code == ExitCode.UNDECIDED
    assert all(objective["open"].get("generator", 0) >= starts["dropped"] for objective in summary["objectives"])


def _intended_ns(turn: Turn) -> int:
    """The intended start of a call and the little that its caller thinks, on the clock of its process."""
    return turn.started_perf_ns - (turn.connect_ns or 0)


def _process_of_the_first(turns: list[Turn]) -> str:
    return min(turns, key=lambda turn: turn.started_unix_ns).process_id


FOR_LONG = """
[[phases]]
name = "long"
kind = "soak"
duration = "1h"
rate = 2
arrival = "constant"
"""


@pytest.mark.nightly
def test_locusts_own_page_starts_stops_and_starts_again(url: str, tmp_path: Path) -> None:
    scenario = tmp_path / "long.toml"
    scenario.write_text(FOR_LONG)
    port = processes.free_port()
    arguments = ["-m", "locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py")]
    arguments += ["--web-port", str(port), "--stop-timeout", "15", *QUICK, "--turns", "1", "--scenario", str(scenario)]
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as page,
        processes.ending(swarm := processes.start("locust", [*arguments, "--host", url], tmp_path, says_ready=False)),
    ):
        wait_until(lambda: answers(page))
        listening = [
            connection
            for connection in psutil.Process(swarm.process.pid).net_connections()
            if connection.status == "LISTEN"
        ]
        assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}, "nobody asked for another address"
        for _ in range(2):
            started = page.post("/swarm", data={"user_count": "1", "spawn_rate": "1", "host": url})
            assert started.json()["success"], started.text
            wait_until(lambda: _heard(page) > 0)
            assert page.post("/stop").json()["success"]
            wait_until(lambda: page.get("/stats/requests").json()["state"] == "stopped")


@pytest.mark.nightly
def test_aggregated_row_of_master_and_workers_is_voice_to_voice(url: str, tmp_path: Path) -> None:
    port = processes.free_port()
    arguments = ["-m", "locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--processes", "2"]
    arguments += ["--web-port", str(port), "--stop-timeout", "15", *QUICK, "--turns", "2", "--host", url]
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as page,
        processes.ending(processes.start("locust", arguments, tmp_path, says_ready=False)),
    ):
        wait_until(lambda: answers(page) and len(page.get("/stats/requests").json()["workers"]) == 2)
        started = page.post("/swarm", data={"user_count": "4", "spawn_rate": "4", "host": url})
        assert started.json()["success"], started.text
        wait_until(lambda: _heard(page) >= 6)
        assert {worker["user_count"] for worker in page.get("/stats/requests").json()["workers"]} == {2}, (
            "both have callers"
        )
        assert page.post("/stop").json()["success"]
        wait_until(lambda: page.get("/stats/requests").json()["state"] == "stopped")
        rows = {row["name"]: row for row in page.get("/stats/requests").json()["stats"]}
    total, heard = rows.pop("Aggregated"), rows.pop(HEARD)
    failed = rows["turn"]["num_requests"] if "turn" in rows else 0  # they have no response time
    assert total["num_requests"] - failed == heard["num_requests"]
    for figure in ("min_response_time", "max_response_time", "avg_response_time", "median_response_time"):
        assert total[figure] == pytest.approx(heard[figure]), figure
    stages = {name: row["num_requests"] for name, row in rows.items()}
    assert stages["llm_first_token_latency (of the answered)"] > 0, "they have their own rows"


def _heard(page: httpx.Client) -> int:
    """Turns with a voice-to-voice in the present run: Locust begins each run with empty statistics."""
    value = page.get("/stats/requests").json()
    running = value["state"] in ("running", "spawning")
    return sum(row["num_requests"] for row in value["stats"] if row["name"] == HEARD) if running else 0
