"""Turns that a service reports without a run of ours: a view by service and day, apart from what callers heard."""

from datetime import date
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from telemetry.model.metrics import METRICS
from telemetry.model.services import ServiceDay, service_run_id
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter, RunRecord
from telemetry.store.questions.pages import PageQuestion
from telemetry.store.questions.runs import newest_run
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import MS, SECOND, START_UNIX_NS, Run, exchange, fill_store
from tests.unit.telemetry.store.opened_stores import reader_of

VIEW = service_run_id("bot", START_UNIX_NS)


def reported(turn: Turn, **changes: object) -> Turn:
    """A service's turn as a framework's span gives it: no run, no place on the audio clock, a trace of its own."""
    identity = {"run_id": VIEW, "speech_end_audio_ns": None, "response_id": None, "sequence": None, "process_id": ""}
    identity["trace_id"] = f"{int(turn.trace_id, 16) + (1 << 100):032x}"
    return msgspec.structs.replace(turn, **identity | changes)


def without_response(turn: Turn) -> Turn:
    return msgspec.structs.replace(turn, response_id=None)


@pytest.mark.slow
def test_a_service_s_day_is_a_run_of_its_own(tmp_path: Path) -> None:
    services = [reported(exchange(index)[1]) for index in range(30)]
    with reader_of(tmp_path, *services) as reader:
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
        assert [turn.source for turn in page.slowest] == ["service"] * 5


@pytest.mark.slow
def test_question_without_run_is_about_caller_turns(tmp_path: Path) -> None:
    turns = [side for index in range(5) for side in (exchange(index)[0], reported(exchange(index)[1]))]
    with reader_of(tmp_path, *turns) as reader:
        assert reader.summary().turns.total == 5
        assert reader.summary(Filter(run_id="run-1")).turns.total == 5
        assert reader.summary(Filter(run_id=VIEW)).turns.total == 5
        assert {(run.run_id, run.turns) for run in reader.runs()} == {("run-1", 5), (VIEW, 5)}


@pytest.mark.slow
def test_both_sides_of_a_turn_are_joined(tmp_path: Path) -> None:
    """Twelve turns for each way in which a service may name the trace or the call of its caller."""
    ways = [("trace_id", "{trace}")]
    ways += [("call_id", name) for name in ("{call}", "CA{trace}", "v3:{trace}", "call/{uuid}", "{uuid}-")]
    pairs: list[tuple[Turn, Turn]] = []
    for index in range(12 * len(ways)):
        column, name = ways[index // 12]
        client, service = map(without_response, exchange(index, network_ms=6.0))
        uuid = str(UUID(client.trace_id)).upper()
        shared = name.format(trace=client.trace_id, call=client.call_id, uuid=uuid)
        pairs.append((client, reported(service, **{"call_id": f"{index:032x}"} | {column: shared})))
    with reader_of(tmp_path, *(turn for pair in pairs for turn in pair)) as reader:
        for index in range(0, len(pairs), 4):
            client, service = pairs[index]
            # A link may name either trace.
            for trace_id in (client.trace_id, service.trace_id):
                record = reader.turn(trace_id, client.turn_index)
                assert [turn and turn.span_id for turn in record] == [client.span_id, service.span_id], ways[
                    index // 12
                ]
        of_callers = reader.summary(Filter(run_id="run-1")).client_service_delta
        of_service = reader.summary(Filter(run_id=VIEW)).client_service_delta
    for delta in (of_callers, of_service):
        assert (delta.joined, delta.client_only, delta.service_only, delta.uncorrected) == (72, 0, 0, 72)
        assert delta.difference_p50_ns == pytest.approx(6 * MS, rel=0.01)
        assert "not heard by a caller" not in delta.reported


@pytest.mark.slow
def test_sides_that_name_nothing_in_common_are_not_joined(tmp_path: Path) -> None:
    turns: list[Turn] = []
    for index in range(10):
        client, service = map(without_response, exchange(index))
        turns += [client, reported(service, call_id=f"conversation-{index}")]
    with reader_of(tmp_path, *turns) as reader:
        assert reader.summary(Filter(run_id="run-1")).client_service_delta.joined == 0
        delta = reader.summary(Filter(run_id=VIEW)).client_service_delta
        assert (delta.joined, delta.service_only) == (0, 10)


def at_another_time(run: Run, by_ns: int) -> Run:
    """The same turns at another time."""
    return Run([msgspec.structs.replace(turn, started_unix_ns=turn.started_unix_ns + by_ns) for turn in run.turns])


def test_service_without_run_id_is_paired_with_its_client(tmp_path: Path) -> None:
    pairs = [exchange(index, run_id="run-1", network_ms=6.0) for index in range(30)]
    strangers = [msgspec.structs.replace(service, run_id="") for _, service in pairs]
    store = fill_store(
        tmp_path, Run([client for client, _ in pairs]), Run(strangers), at_another_time(Run(strangers), 86_400 * SECOND)
    )
    with StoreReader(store) as reader:
        delta = reader.summary(Filter(run_id="run-1")).client_service_delta
    assert (delta.joined, delta.client_only, delta.service_only) == (30, 0, 0)
    assert delta.difference_p50_ns == 6 * MS


@pytest.mark.slow
def test_unheard_responses_of_filter_are_of_calls_in_view(tmp_path: Path) -> None:
    """A response heard by turns out of view counts as heard."""
    pairs = [exchange(index, cohort="a" if index < 15 else "b") for index in range(30)]
    # Ten calls have three turns each; of the first and of the last one the callers heard only two.
    heard = [client for index, (client, _) in enumerate(pairs) if index not in (2, 29)]
    until_unix_ns = pairs[3][0].started_unix_ns
    store = fill_store(tmp_path, Run(heard), Run([service for _, service in pairs]))
    with StoreReader(store) as reader:
        for f, alone in (
            (Filter(), 2),
            (Filter(run_id="run-1"), 2),
            (Filter(run_id="run-1", length_class="short"), 2),
            (Filter(run_id="run-1", cohort="a"), 1),
            (Filter(cohort="b"), 1),
            (Filter(run_id="run-1", until_unix_ns=until_unix_ns), 1),
        ):
            assert reader.summary(f).client_service_delta.service_only == alone, f


def run_record(run_id: str, first_s: int, last_s: int) -> RunRecord:
    return RunRecord(run_id, first_s * SECOND, last_s * SECOND, 1, None, None, ended=False, declared={})


def test_service_reporting_during_calls_is_not_newest_run() -> None:
    ours, theirs = run_record("run-1", 1_000, 1_300), run_record(VIEW, 1_002, 1_320)
    assert newest_run([theirs, ours]) == ours
    later = run_record(VIEW, 1_002, 5_000)
    assert newest_run([ours, later]) == later
    assert newest_run([theirs]) == theirs
    assert newest_run([]) is None
