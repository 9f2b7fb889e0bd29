"""A report of a run from its store alone: made by hand here, so that each test changes the one thing it is about."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.reports.summary import schema
from loadtest.run.judged_run import judged_run
from loadtest.run.report import ReportFiles, list_runs, report
from loadtest.run.run_place import NamedRun
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.objectives.slo import default_objectives
from telemetry.store.questions.runs import RECENT_S
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, START_UNIX_NS, client_turn, exchange, run_span

TEXTS = {
    "target": "ws://127.0.0.1:8080/v1/realtime",
    "protocol": "openai-realtime",
    "corpus": "mine",
    "corpus_kind": "recorded human",
    "edges": "exact",
    "fade_ms": 5.0,
    "recorded_ends": 2,
    "licenses": '["CC0-1.0"]',
    "utterances": 12,
    "users": 8,
    "run_time_s": 60.0,
    "processes": 2,
    "arrivals": "closed",
    "noise": "pink",
    "snr_db": 10.0,
    "channel": "clean",
    "seed": 7,
    "versions": '{"locust": "2"}',
    "calibration": "calibrated to ±0.3 ms",
    "calibration_state": "calibrated",
    "calibrated_to_ms": "0.3",
    "calibrated_callers": 10,
    "calibration_date": "2026-11-21",
}


def _span(process: str, at_s: float, phase: str, run_id: str = "run-1", **output: object) -> SpanRow:
    at_unix_ns = START_UNIX_NS + round(at_s * SECOND)
    reported = {f"voice.run.{name}": value for name, value in output.items()}
    names: dict[str, object] = {"voice.run.run_id": run_id, "voice.run.process_id": process, "voice.run.phase": phase}
    return replace(run_span(f"{run_id}-{process}", at_unix_ns, phase), attributes={**reported, **names})


def _store(folder: Path, *spans: SpanRow, turns: int = 0, **changes: object) -> Path:
    with StoreWriter(folder) as writer:
        writer.append(
            Batch(turns=[client_turn(index, process_id="1", **changes) for index in range(turns)], spans=list(spans))
        )  # type: ignore[arg-type] - fields by name
    return folder


def _ended(processes: str = "12", run_id: str = "run-1", at_s: float = 0.0) -> list[SpanRow]:
    began = [_span(process, at_s, "start", run_id, worker=f"{process} of 2", **TEXTS) for process in processes]
    return [*began, *(_span(process, at_s + 61.5, "end", run_id) for process in processes)]


def _report(
    store: Path, tmp_path: Path, at_s: float = 3600.0, *, run_id: str | None = None, slo: Path | None = None
) -> tuple[ExitCode, str, dict[str, Any]]:
    text, file = StringIO(), tmp_path / "report.json"
    console = Console(file=text, width=200)
    files = ReportFiles(json=file, html=tmp_path / "r.html", junit=tmp_path / "j.xml", markdown=tmp_path / "s.md")
    now_unix_ns = START_UNIX_NS + round(at_s * SECOND)
    code = report(NamedRun(str(store), run_id), console, slo=slo, files=files, now_unix_ns=now_unix_ns)
    assert all(path.stat().st_size for path in files.by_artifact.values())
    summary = json.loads(file.read_text())
    jsonschema.validate(summary, schema())
    assert summary["exit_code"] == code
    return code, text.getvalue(), summary


@pytest.mark.slow
def test_report_has_the_settings_that_processes_declared(tmp_path: Path) -> None:
    _, output, summary = _report(_store(tmp_path / "s", *_ended(), turns=30), tmp_path)
    run = summary["run"]
    assert (run["users"], run["run_time_s"], run["seed"], run["arrivals"]) == (8, 60.0, 7, "closed")
    assert (run["started_unix_ns"], run["elapsed_s"], run["state"]) == (START_UNIX_NS, 61.5, "ended")
    assert run["corpus"] == {
        "name": "mine",
        "kind": "recorded human",
        "utterances": 12,
        "licenses": ["CC0-1.0"],
        "edges": "exact",
        "fade_ms": 5.0,
        "recorded_ends": 2,
    }
    assert run["profile"] == {"noise": "pink", "snr_db": 10.0, "length": None, "channel": "clean"}
    assert run["versions"] == {"locust": "2"}
    assert summary["generator"]["calibration"] == {
        "state": "calibrated",
        "sentence": "calibrated to ±0.3 ms",
        "error_s": pytest.approx(0.0003),
        "users": 10,
        "processes": None,
        "date": "2026-11-21",
    }
    assert summary["telemetry"]["spooled"] is None
    assert output.startswith(f"run run-1 of {tmp_path / 's'} (the only one)\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turns", "changes", "code"),
    [
        (150, {}, ExitCode.OK),
        (150, {"voice_to_voice_ms": 5_000.0}, ExitCode.OBJECTIVE_MISSED),
        (5, {}, ExitCode.UNDECIDED),
        (0, {}, ExitCode.GENERATOR_LIMITED),  # its callers made no call
    ],
)
def test_swarm_of_plain_locust_gets_a_verdict(
    tmp_path: Path, turns: int, changes: dict[str, Any], code: ExitCode
) -> None:
    objective = tmp_path / "slo.yaml"
    source = Path(__file__).parents[4] / "loadtest" / "run" / "demo-objectives.yaml"
    objective.write_text(source.read_text().split("\n---\n")[0])
    store = _store(tmp_path / "s", *_ended(), turns=turns, connect_ns=SECOND // 10, **changes)
    assert _report(store, tmp_path, slo=objective)[0] is code


def _with_invalid(directory: Path, invalid: int) -> Path:
    """A run of 150 good turns and some that were not said as recorded."""
    store = _store(directory, *_ended(), turns=150, connect_ns=SECOND // 10)
    spoiled: dict[str, Any] = {"outcome": "invalid", "invalid_reasons": ("frame lateness",)}
    with StoreWriter(store) as writer:
        turns = [client_turn(index, process_id="1", **spoiled) for index in range(150, 150 + invalid)]
        writer.append(Batch(turns=turns, spans=[]))
    return store


@pytest.mark.slow
def test_objective_that_holds_despite_invalid_turns_is_met(tmp_path: Path) -> None:
    code, output, summary = _report(_with_invalid(tmp_path / "s", 7), tmp_path)
    fast = next(objective for objective in summary["objectives"] if objective["name"] == "voice-to-voice")
    assert (fast["met"], fast["good"], fast["bad"], fast["open"]) == (True, 150, 0, {"generator": 7})
    assert "even if all 7 unmeasured turns had been slow" in fast["sentence"]
    # 99 % of 157 turns cannot be shown with 7 of them open: that is what the generator prevented.
    assert code is ExitCode.GENERATOR_LIMITED
    assert "because of 7 turns that the load generator held up, did not say as recorded" in " ".join(output.split())
    assert summary["generator"]["limited"] is True


@pytest.mark.slow
def test_exit_code_is_generator_limited_if_invalid_turns_decide(tmp_path: Path) -> None:
    code, _, summary = _report(_with_invalid(tmp_path / "s", 10), tmp_path)
    assert code is ExitCode.GENERATOR_LIMITED
    fast = next(objective for objective in summary["objectives"] if objective["name"] == "voice-to-voice")
    assert (fast["met"], fast["eligible"]) == (None, 160), "150 of 160 if they were bad, 160 of 160 if they were good"


@pytest.mark.slow
def test_a_miss_that_holds_anyway_stays_a_miss(tmp_path: Path) -> None:
    store = _store(tmp_path / "s", *_ended(), turns=150, connect_ns=SECOND // 10, voice_to_voice_ms=5_000.0)
    with StoreWriter(store) as writer:
        spoiled = [client_turn(index, process_id="1", outcome="invalid") for index in range(150, 190)]
        writer.append(Batch(turns=spoiled, spans=[]))
    assert _report(store, tmp_path)[0] is ExitCode.OBJECTIVE_MISSED


@pytest.mark.slow
def test_silent_process_is_lost_and_recent_one_is_running(tmp_path: Path) -> None:
    spans = [*_ended("1"), _span("2", 40.0, "start", worker="2 of 2", **TEXTS)]
    store = _store(tmp_path / "s", *spans)
    code, output, summary = _report(store, tmp_path, at_s=40.0 + RECENT_S)
    assert (summary["run"]["state"], summary["generator"]["processes_lost"]) == ("under way", 0)
    assert "the run is still under way: these are the figures so far" in output
    assert code is ExitCode.UNDECIDED
    code, output, summary = _report(store, tmp_path, at_s=40.0 + RECENT_S + 1)
    assert (summary["run"]["state"], summary["generator"]["processes_lost"]) == ("ended", 1)
    assert "under way" not in output
    assert code is ExitCode.GENERATOR_LIMITED


@pytest.mark.slow
def test_a_process_that_never_began_is_lost_once_the_run_is_over(tmp_path: Path) -> None:
    _, _, summary = _report(_store(tmp_path / "s", *_ended("1")), tmp_path)
    assert summary["generator"]["lost"] == [{"worker": None, "after_s": None, "calls_cut": None}]
    under_way = _store(tmp_path / "t", _span("1", 0.0, "start", **TEXTS))
    assert _report(under_way, tmp_path, at_s=5.0)[2]["generator"]["lost"] == []


@pytest.mark.slow
def test_newest_run_is_reported_unless_another_is_named(tmp_path: Path) -> None:
    store = _store(tmp_path / "s", *_ended(), *_ended("3", run_id="run-2", at_s=100.0), turns=3)
    _, output, summary = _report(store, tmp_path)
    assert summary["run"]["id"] == "run-2"
    assert f"run run-2 of {store} (the newest of 2 runs; --run names another, --list shows them)" in output
    _, output, summary = _report(store, tmp_path, run_id="run-1")
    assert (summary["run"]["id"], summary["turns"]["total"]) == ("run-1", 3)
    assert not output.startswith("run run-1 of")
    text = StringIO()
    assert list_runs(store, Console(file=text, width=200), now_unix_ns=START_UNIX_NS) is ExitCode.OK
    lines = text.getvalue().splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["run-2", "run-1"]


@pytest.mark.slow
def test_run_of_which_store_keeps_a_part_is_reported_as_such(tmp_path: Path) -> None:
    store = _store(tmp_path / "s", *_ended(), turns=3)
    gone = "the store no longer keeps the oldest turns of the run: these are the figures of the others"
    assert gone not in _report(store, tmp_path)[1]
    with StoreWriter(store) as writer:
        with writer.change() as cursor:
            cursor.execute("INSERT INTO removed VALUES ('turns', ?, 3, 0)", [client_turn(0).run_id])
            cursor.execute("DELETE FROM turns")
        writer.append(Batch([client_turn(3, process_id="1")]))
    _, output, summary = _report(store, tmp_path)
    assert gone in output
    assert summary["turns"]["total"] == 1
    text = StringIO()
    assert list_runs(store, Console(file=text, width=200), now_unix_ns=START_UNIX_NS) is ExitCode.OK
    assert "1 left" in text.getvalue()


@pytest.mark.slow
def test_runs_with_missing_or_invalid_settings_are_reported(tmp_path: Path) -> None:
    _, output, summary = _report(_store(tmp_path / "s", turns=3), tmp_path)
    assert (summary["run"]["users"], summary["run"]["seed"], summary["run"]["elapsed_s"]) == (None, None, None)
    assert "callers not known" in output
    nonsense = dict.fromkeys(TEXTS, "\x1b[31m{[")
    store = _store(tmp_path / "t", _span("1", 0.0, "start", **nonsense), _span("1", 9.0, "end"))
    _, _, summary = _report(store, tmp_path)
    assert (summary["run"]["users"], summary["run"]["versions"], summary["generator"]["calibration"]) == (
        None,
        {},
        None,
    )


@pytest.mark.slow
def test_run_over_for_its_command_loses_what_did_not_end(tmp_path: Path) -> None:
    store = _store(tmp_path / "s", _span("1", 0.0, "start"))
    with StoreReader(store) as reader:
        asked = judged_run(reader, "run-1", default_objectives(), asked={"users": 4, "processes": 2})
        assert (asked.run.users, len(asked.run.lost), asked.run.is_under_way) == (4, 2, False)
        nobody = judged_run(reader, "run-9", default_objectives(), asked={"users": 4, "target": "ws://x"})
        assert (nobody.run.users, nobody.run.target, nobody.summary.turns.total) == (4, "ws://x", 0)


def test_folder_without_store_or_run_is_one_sentence(tmp_path: Path) -> None:
    console = Console(file=StringIO())
    with pytest.raises(UsageError, match="is not a folder: give the one that the sidecar was given"):
        report(tmp_path / "nowhere", console)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("hello")
    for action in (report, list_runs):
        with pytest.raises(UsageError, match="is not a store, or nothing was ever written to it"):
            action(foreign, console)
    inner = _store(foreign / "store", turns=1, source="service")
    with pytest.raises(UsageError, match=f"give {inner}"):
        report(foreign, console)
    with pytest.raises(UsageError, match="holds no run: nothing that callers measured"):
        report(inner, console)
    store = _store(tmp_path / "s", *_ended())
    with pytest.raises(UsageError, match="--run 'x' is not in"):
        report(NamedRun(str(store), "x"), console)
    (tmp_path / "slo.yaml").write_text("nothing")
    with pytest.raises(UsageError, match=r"slo\.yaml"):
        report(store, console, slo=tmp_path / "slo.yaml")


@pytest.mark.slow
def test_a_service_s_day_is_judged_as_what_it_is(tmp_path: Path) -> None:
    run_id = "service:bot:2026-09-21"
    _store(tmp_path / "store", turns=30, run_id=run_id, source="service", connect_ns=None)
    code, text, summary = _report(tmp_path / "store", tmp_path, run_id=run_id)
    assert "Stages, reported by the service, not heard by a caller" in text
    assert "bot · 2026-09-21 (UTC) · reported by the service, not heard by a caller" in text
    assert "pacing" not in text
    assert (summary["run"]["id"], summary["run"]["source"], summary["turns"]["total"]) == (run_id, "service", 30)
    assert code in (ExitCode.OK, ExitCode.OBJECTIVE_MISSED, ExitCode.UNDECIDED)
    listed = StringIO()
    list_runs(tmp_path / "store", Console(file=listed, width=200), now_unix_ns=START_UNIX_NS)
    (line,) = listed.getvalue().splitlines()[1:]
    assert line.split() == [run_id, "service", "2026-09-21", "14:13:20", "reported", "30", "bot"]


@pytest.mark.slow
def test_reports_are_rewritten_once_service_reported_more(tmp_path: Path) -> None:
    pairs = [exchange(index) for index in range(8)]
    place = NamedRun(str(tmp_path / "store"), "run-1", tmp_path)
    (tmp_path / "settings-run-1.json").write_text("{}")

    def reported(*turns: Turn) -> tuple[int, str]:
        with StoreWriter(tmp_path / "store") as writer:
            writer.append(Batch(turns=turns, spans=[]))
        text = StringIO()
        report(place, Console(file=text, width=300), now_unix_ns=START_UNIX_NS + 3600 * SECOND)
        left = json.loads((tmp_path / "summary.json").read_text())["client_service_delta"]
        assert f"client against service on {left['joined']} turns" in (tmp_path / "report.html").read_text()
        return left["joined"], text.getvalue()

    joined, text = reported(*(turn for pair in pairs[:3] for turn in pair), *(client for client, _ in pairs[3:]))
    assert joined == 3
    assert "; the service had not reported 5 turns that callers heard" in text
    joined, text = reported(*(service for _, service in pairs[3:]))
    assert joined == 8
    assert "had not reported" not in text
    assert "written to" in text
    before = (tmp_path / "report.html").stat().st_mtime_ns
    _, text = reported()
    assert "written to" not in text
    assert (tmp_path / "report.html").stat().st_mtime_ns == before
