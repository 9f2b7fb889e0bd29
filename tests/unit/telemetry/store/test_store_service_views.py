"""Turns that a service reports without a run of ours: a view by service and day, apart from what callers heard."""

from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from telemetry.model.metrics import METRICS
from telemetry.model.service_runs import ServiceDay, service_run_id
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter, RunRecord
from telemetry.store.questions.pages import PageQuestion
from telemetry.store.questions.runs import newest_run
from telemetry.store.reader import StoreReader
from telemetry.store.rollups.library import FEWEST_TURNS
from telemetry.store.rollups.making import roll_up_tables
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import MS, SECOND, START_UNIX_NS, exchange
from tests.unit.telemetry.store.rollups.answers_compared import compared, mixed_turns, stored

VIEW = service_run_id("bot", START_UNIX_NS)


def reported(turn: Turn, **changes: object) -> Turn:
    """A service's turn as a framework's span gives it: no run, no place on the audio clock, a trace of its own."""
    anew = {"run_id": VIEW, "speech_end_audio_ns": None, "response_id": None, "sequence": None, "process_id": ""}
    anew["trace_id"] = f"{int(turn.trace_id, 16) + (1 << 100):032x}"
    return msgspec.structs.replace(turn, **anew | changes)


def without_response(turn: Turn) -> Turn:
    return msgspec.structs.replace(turn, response_id=None)


def written(folder: Path, *turns: Turn) -> StoreReader:
    with StoreWriter(folder) as writer:
        writer.append(Batch(turns))
    return StoreReader(folder)


def test_a_service_s_day_is_a_run_of_its_own(tmp_path: Path) -> None:
    services = [reported(exchange(index)[1]) for index in range(30)]
    with written(tmp_path, *services) as reader:
        (run,) = reader.runs()
        assert run.service == ServiceDay("bot", date(2026, 9, 21))
        assert (run.run_id, run.turns) == (VIEW, 30)
        summary = reader.summary(Filter(run_id=VIEW))
        assert (summary.turns.total, summary.turns.ok, summary.metrics["voice_to_voice"].n) == (30, 30, 30)
        assert summary.metrics["voice_to_voice"].p95 == METRICS["voice_to_voice"].value(services[0])
        assert [turn.source for turn in reader.slowest(Filter(run_id=VIEW), limit=3)] == ["service"] * 3
        assert sum(point.n for point in reader.timeline(Filter(run_id=VIEW))) == 30
        assert {"endpointing", "asr", "llm", "tts"} <= reader.stage_budget(Filter(run_id=VIEW)).keys()
        in_time = Objective("v2v", "metric", 0.9, "voice_to_voice", 800 * MS)
        assert reader.count(Filter(run_id=VIEW))(in_time) == EligibleTurns(30, 30)
        page = reader.page(PageQuestion())
        assert page.run == run
        assert [turn.source for turn in page.dots] == ["service"] * 30


def test_what_no_run_is_asked_of_is_what_callers_heard(tmp_path: Path) -> None:
    turns = [side for index in range(5) for side in (exchange(index)[0], reported(exchange(index)[1]))]
    with written(tmp_path, *turns) as reader:
        assert reader.summary().turns.total == 5
        assert reader.summary(Filter(run_id="run-1")).turns.total == 5
        assert reader.summary(Filter(run_id=VIEW)).turns.total == 5
        assert {(run.run_id, run.turns) for run in reader.runs()} == {("run-1", 5), (VIEW, 5)}


each_way = pytest.mark.parametrize("fewest_rolled_up", [FEWEST_TURNS, -1], ids=["exact", "rolled up"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("trace_id", "{trace}"),
        ("call_id", "{call}"),
        ("call_id", "CA{trace}"),
        ("call_id", "v3:{trace}"),
        ("call_id", "call/{uuid}"),
        ("call_id", "{uuid}-"),
    ],
    ids=["trace", "call", "twilio", "telnyx", "uuid", "dash"],
)
@each_way
def test_both_sides_of_a_turn_are_joined(tmp_path: Path, column: str, name: str, fewest_rolled_up: int) -> None:
    turns: list[Turn] = []
    for index in range(20):
        client, service = map(without_response, exchange(index, network_ms=6.0))
        uuid = str(UUID(client.trace_id)).upper()
        shared = name.format(trace=client.trace_id, call=client.call_id, uuid=uuid)
        turns += [client, reported(service, **{"call_id": f"{index:032x}"} | {column: shared})]
    folder = stored(tmp_path / "store", turns, segments=4, compacted=2)
    with StoreReader(folder, fewest_rolled_up=fewest_rolled_up) as reader:
        of_callers = reader.summary(Filter(run_id="run-1")).client_service_delta
        of_service = reader.summary(Filter(run_id=VIEW)).client_service_delta
        for client, service in zip(turns[::2], turns[1::2], strict=True):
            # A link may name either trace.
            for trace_id in (client.trace_id, service.trace_id):
                found = reader.turn(trace_id, client.turn_index)
                assert [turn and turn.span_id for turn in found] == [client.span_id, service.span_id]
    for delta in (of_callers, of_service):
        assert (delta.joined, delta.client_only, delta.service_only, delta.uncorrected) == (20, 0, 0, 20)
        assert delta.difference_p50_ns == pytest.approx(6 * MS, rel=0.01)
        assert "not heard by a caller" not in delta.reported


@each_way
def test_sides_that_name_nothing_in_common_are_not_joined(tmp_path: Path, fewest_rolled_up: int) -> None:
    turns: list[Turn] = []
    for index in range(10):
        client, service = map(without_response, exchange(index))
        turns += [client, reported(service, call_id=f"conversation-{index}")]
    folder = stored(tmp_path / "store", turns, segments=2, compacted=2)
    with StoreReader(folder, fewest_rolled_up=fewest_rolled_up) as reader:
        assert reader.summary(Filter(run_id="run-1")).client_service_delta.joined == 0
        delta = reader.summary(Filter(run_id=VIEW)).client_service_delta
        assert (delta.joined, delta.service_only) == (0, 10)


@pytest.mark.slow
def test_roll_ups_join_as_the_turns_do(tmp_path: Path) -> None:
    turns: list[Turn] = []
    for index in range(60):
        client, service = map(without_response, exchange(index, network_ms=2.0 + index))
        call = {"call_id": client.call_id if index % 3 else f"other-{index}"}
        turns += [client, reported(service, **call)]
    folder = stored(tmp_path / "store", turns, segments=6, compacted=3)
    with StoreReader(folder) as exact, StoreReader(folder, fewest_rolled_up=-1) as rolled:
        asked = Filter(run_id="run-1")
        compared(exact.summary(asked).client_service_delta, rolled.summary(asked).client_service_delta)


@pytest.mark.slow
def test_roll_ups_of_a_view_answer_as_its_turns_do(tmp_path: Path) -> None:
    turns: list[Turn] = []
    for place, turn in enumerate(mixed_turns(5, 240)):
        turns.append(turn if turn.source == "client" else reported(turn, cohort=("a", "b", None)[place % 3]))
    folder = stored(tmp_path / "store", turns, segments=8, compacted=5)
    objectives = [Objective("v2v", "metric", 0.9, "voice_to_voice", 800 * MS), Objective("ok", "outcome", 0.9)]
    with StoreReader(folder) as exact, StoreReader(folder, fewest_rolled_up=-1) as rolled:
        views = [run.run_id for run in exact.runs() if run.service is not None]
        assert views
        first = rolled.summary(Filter(run_id=views[0])).metrics["voice_to_voice"]
        assert not first.approximate, "who looks once is answered from the turns"
        for f in (Filter(run_id=views[0]), Filter(run_id=views[0], cohort="a"), Filter(run_id="run-1"), Filter()):
            found = rolled.summary(f)
            assert found.metrics["voice_to_voice"].approximate
            compared(exact.summary(f), found)
            assert rolled.dimension_values(f) == exact.dimension_values(f)
            assert rolled.objective_counts(f, objectives) == exact.objective_counts(f, objectives)
            assert rolled.slowest(f, limit=5) == exact.slowest(f, limit=5)
            compared(exact.stage_budget(f), rolled.stage_budget(f))
        of_minute = Filter(run_id=views[0], since_unix_ns=START_UNIX_NS + 60 * SECOND)
        assert rolled.summary(of_minute).turns == exact.summary(of_minute).turns


def test_a_segment_of_a_view_is_rolled_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch([reported(exchange(index)[1]) for index in range(30)]))
        with StoreReader(tmp_path, fewest_rolled_up=-1) as reader:
            asked = Filter(run_id=VIEW)
            assert [reader.summary(asked).turns.total for _ in range(2)] == [30, 30]
            made: list[int] = []

            def counted(database: Any, tables: Any) -> Any:
                found = roll_up_tables(database, tables)
                made.append(sum(cell.n for _, cell in found.of("turns")))
                return found

            monkeypatch.setattr("telemetry.store.rollups.library.roll_up_tables", counted)
            writer.append(Batch([reported(exchange(index)[1]) for index in range(30, 34)]))
            assert reader.summary(asked).turns.total == 34
            assert made == [4]


def run_record(run_id: str, first_s: int, last_s: int) -> RunRecord:
    return RunRecord(run_id, first_s * SECOND, last_s * SECOND, 1, None, None, ended=False, declared={})


def test_a_service_that_reports_while_callers_are_on_the_line_is_not_the_newest_run() -> None:
    ours, theirs = run_record("run-1", 1_000, 1_300), run_record(VIEW, 1_002, 1_320)
    assert newest_run([theirs, ours]) == ours
    later = run_record(VIEW, 1_002, 5_000)
    assert newest_run([ours, later]) == later
    assert newest_run([theirs]) == theirs
    assert newest_run([]) is None
