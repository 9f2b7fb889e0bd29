"""Turns of services from committed spans: each once, whatever ends the process."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model.errors import StoreError
from telemetry.model.turns import Turn
from telemetry.sidecar import service_turns as module
from telemetry.sidecar.adapters import turn_assembly
from telemetry.sidecar.adapters.frameworks import Framework
from telemetry.sidecar.adapters.spans_of_turn import SpansOfTurn
from telemetry.sidecar.adapters.turn_assembly import (
    COMPLETE_AFTER_NS,
    REMEMBERED_NS,
    UPDATED_WITHIN_NS,
    TurnChange,
)
from telemetry.sidecar.counts.state import IngestState
from telemetry.sidecar.faults import FaultBoard
from telemetry.sidecar.service_turns import ServiceTurns
from telemetry.store.reader import StoreReader
from telemetry.store.schema import turns_table
from telemetry.store.writer import AppendedTables, StoreWriter
from tests.fixtures_frameworks import PipecatTurn, pipecat_request
from tests.fixtures_sidecar import decode_traces, turns_request
from tests.fixtures_turns import client_turn

S = 1_000_000_000


class Life:
    """A sidecar's life as far as turns of services are concerned; ends without a farewell."""

    def __init__(self, directory: Path, clock: Callable[[], int]) -> None:
        self.faults = FaultBoard()
        self.state = IngestState()
        self.stored: list[Sequence[Turn]] = []
        self.revised: list[Sequence[Turn]] = []
        self.writer = StoreWriter(directory, unix_ns=clock)
        self.turns = ServiceTurns(
            self.writer,
            self.stored.append,
            self.state,
            self.faults,
            revised=self.revised.append,
            unix_ns=clock,
        )
        self.turns.recover()

    def commit(self, body: bytes) -> None:
        tables = decode_traces([body])
        self.turns.take(self.writer.append_tables(turns_table(tables.turns), tables.spans, tables.points).spans)

    def end(self) -> None:
        self.writer.close()


class Clock:
    def __init__(self) -> None:
        self.unix_ns = 1_794_400_000 * S

    def __call__(self) -> int:
        return self.unix_ns


def read(directory: Path) -> list[Turn]:
    with StoreReader(directory) as reader:
        return reader.turns()


def spans_of(turns: Sequence[PipecatTurn]) -> list[Span]:
    return [span for turn in turns for span in turn.spans()]


FOUR = [PipecatTurn(call, index) for call in (0, 1) for index in (0, 1)]


def test_committed_spans_are_turns_at_once(tmp_path: Path) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    life.commit(pipecat_request(spans_of(FOUR)))
    life.turns.refresh()
    turns = read(tmp_path)
    assert sorted((turn.call_id, turn.turn_index) for turn in turns) == [
        (f"conversation-{call}", index) for call in (0, 1) for index in (0, 1)
    ]
    assert {(turn.source, turn.run_id, turn.outcome) for turn in turns} == {("service", "service:bot:2026-11-11", "ok")}
    assert sum(map(len, life.stored)) == 4
    life.end()


def test_turn_is_pending_until_its_own_span_comes(tmp_path: Path) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    *stages, own = FOUR[1].spans()
    for stage in stages:
        stage.parent_span_id = own.span_id
    life.commit(pipecat_request(stages))
    life.turns.refresh()
    (pending,) = read(tmp_path)
    assert (pending.outcome, pending.span_id, life.stored) == ("pending", FOUR[1].span, [])
    life.end()
    clock.unix_ns += S
    life = Life(tmp_path, clock)
    life.commit(pipecat_request([own]))
    life.turns.refresh()
    (turn,) = read(tmp_path)
    assert (turn.outcome, turn.span_id, turn.late_spans) == ("ok", FOUR[1].span, None)
    assert [*map(len, life.stored)] == [1]
    assert life.revised == []
    life.end()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_turns_are_stored_once_in_any_order_across_restarts(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    clock = Clock()
    life = Life(tmp_path, clock)
    spans = spans_of(FOUR) * 2
    chance.shuffle(spans)
    for span in spans:
        life.commit(pipecat_request([span]))
        clock.unix_ns += chance.randrange(0, 4 * S)
        if chance.random() < 0.7:
            life.turns.refresh()
        if chance.random() < 0.2:
            life.end()
            life = Life(tmp_path, clock)
    life.turns.close()
    life.end()
    turns = read(tmp_path)
    assert sorted((turn.trace_id, turn.span_id) for turn in turns) == sorted(
        (identity.trace, identity.span) for identity in FOUR
    )


def test_turn_not_stored_at_exit_is_recovered_at_any_later_time(tmp_path: Path) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    life.commit(pipecat_request(spans_of(FOUR[:1])))
    life.end()
    clock.unix_ns += 10 * UPDATED_WITHIN_NS
    life = Life(tmp_path, clock)
    assert len(read(tmp_path)) == 1
    life.end()


@pytest.mark.slow
def test_old_spans_are_read_again_when_more_of_the_turn_comes(tmp_path: Path) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    *stages, own = without_latency(FOUR[1])
    life.commit(pipecat_request([own]))
    life.turns.close()
    clock.unix_ns += UPDATED_WITHIN_NS - S
    life.commit(pipecat_request(FOUR[2].spans()))
    life.turns.refresh()
    life.end()
    life = Life(tmp_path, clock)
    assert life.state.framework_spans_open == 0
    life.commit(pipecat_request(stages))
    life.turns.refresh()
    assert [(turn.span_id, turn.outcome, turn.late_spans) for turn in read(tmp_path) if turn.outcome == "ok"] == [
        (FOUR[2].span, "ok", None),
        (FOUR[1].span, "ok", None),
    ][::-1]
    assert life.state.revised_turns == 1
    life.end()


def test_stages_that_come_after_a_day_double_no_turn(tmp_path: Path) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    *stages, own = without_latency(FOUR[1])
    life.commit(pipecat_request([own]))
    life.turns.close()
    life.end()
    clock.unix_ns += 2 * UPDATED_WITHIN_NS
    life = Life(tmp_path, clock)
    clock.unix_ns += REMEMBERED_NS + S
    life.commit(pipecat_request(FOUR[2].spans()))
    life.turns.refresh()
    life.commit(pipecat_request(stages))
    life.turns.refresh()
    assert sorted(turn.span_id for turn in read(tmp_path)) == sorted([FOUR[1].span, FOUR[2].span])
    life.end()


def test_turns_that_cannot_be_stored_now_are_stored_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    life.commit(pipecat_request(spans_of(FOUR)))
    with monkeypatch.context() as patch:

        def full(*_: object) -> AppendedTables:
            raise StoreError("no room")

        patch.setattr(life.writer, "replace_turns", full)
        life.turns.refresh()
        life.commit(pipecat_request(spans_of([PipecatTurn(2, 0)])))
        life.turns.refresh()
    assert [fault.name for fault in life.faults.all()] == ["service_turns"]
    life.turns.refresh()
    assert len(read(tmp_path)) == 5
    assert life.faults.all() == ()
    life.end()


def test_a_turn_that_cannot_be_read_harms_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = turn_assembly.framework_turn

    def fussy(spans: SpansOfTurn, framework: Framework) -> Turn | None:
        if spans.first.span.span_id == FOUR[0].span:
            raise ValueError("not this one")
        return make(spans, framework)

    monkeypatch.setattr(turn_assembly, "framework_turn", fussy)
    life = Life(tmp_path, Clock())
    life.commit(pipecat_request(spans_of(FOUR)))
    life.turns.close()
    assert len(read(tmp_path)) == 3
    assert "not this one" in life.faults.all()[0].sentence
    life.end()


def test_turn_that_cannot_be_stored_harms_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(tmp_path, Clock())
    replace_turns = life.writer.replace_turns

    def fussy(changes: Sequence[TurnChange]) -> Sequence[Turn]:
        if any(change.turn is not None and change.turn.span_id == FOUR[1].span for change in changes):
            raise ValueError("not this one")
        return replace_turns(changes)

    monkeypatch.setattr(life.writer, "replace_turns", fussy)
    life.commit(pipecat_request(spans_of(FOUR)))
    life.turns.refresh()
    assert sorted(turn.span_id for turn in read(tmp_path)) == sorted(
        identity.span for identity in FOUR if identity is not FOUR[1]
    )
    assert sum(map(len, life.stored)) == 3
    assert "not this one" in life.faults.all()[0].sentence
    life.turns.refresh()
    assert sum(map(len, life.stored)) == 3, "it is not tried again"
    life.end()


def test_our_own_spans_never_become_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(row: object) -> None:
        raise AssertionError(row)

    monkeypatch.setattr(module, "span_from_row", refused)
    life = Life(tmp_path, Clock())
    life.commit(turns_request([client_turn(1)]).SerializeToString())
    life.turns.close()
    assert life.faults.all() == ()
    assert [turn.source for turn in read(tmp_path)] == ["client"]
    life.end()


def without_latency(turn: PipecatTurn) -> list[Span]:
    """The spans of a turn that was answered, whose own span does not state the latency."""
    *stages, own = turn.spans()
    for stage in stages:
        stage.parent_span_id = own.span_id
    kept = [attribute for attribute in own.attributes if attribute.key != "turn.user_bot_latency_seconds"]
    del own.attributes[:]
    own.attributes.extend(kept)
    return [*stages, own]


def outcomes_of(turns: Sequence[Turn]) -> list[tuple[str, str, str, int | None]]:
    return [(turn.trace_id, turn.span_id, turn.outcome, turn.late_spans) for turn in turns]


def test_turn_with_late_stages_is_judged_again(tmp_path: Path) -> None:
    """14 s after its own span: "no reply" was wrong."""
    clock = Clock()
    life = Life(tmp_path, clock)
    *stages, own = without_latency(FOUR[1])
    life.commit(pipecat_request([own, *FOUR[2].spans()]))
    life.turns.refresh()
    clock.unix_ns += COMPLETE_AFTER_NS
    life.turns.refresh()
    other = FOUR[2].trace, FOUR[2].span, "ok", None
    assert sorted(outcomes_of(read(tmp_path))) == [(FOUR[1].trace, FOUR[1].span, "no_reply", None), other]
    clock.unix_ns += 4 * S
    life.commit(pipecat_request(stages))
    life.turns.refresh()
    assert sorted(outcomes_of(read(tmp_path))) == [(FOUR[1].trace, FOUR[1].span, "ok", 3), other]
    assert (life.state.framework_spans_late, life.state.revised_turns) == (3, 1)
    assert [[turn.outcome for turn in turns] for turns in life.revised] == [["ok"]]
    assert sum(map(len, life.stored)) == 2, "each turn is counted once"
    life.turns.refresh()
    assert life.state.revised_turns == 1
    life.end()


@pytest.mark.slow
def test_a_turn_is_the_same_after_a_restart_whatever_came_late(tmp_path: Path) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    *stages, own = without_latency(FOUR[1])
    life.commit(pipecat_request([own]))
    life.turns.refresh()
    clock.unix_ns += COMPLETE_AFTER_NS
    life.turns.refresh()
    life.commit(pipecat_request(stages))  # and the process is killed before it looks
    life.end()
    life = Life(tmp_path, clock)
    life.turns.close()
    assert outcomes_of(read(tmp_path)) == [(FOUR[1].trace, FOUR[1].span, "ok", None)]
    assert life.state.revised_turns == 1
    life.end()
    life = Life(tmp_path, clock)
    life.turns.close()
    assert (outcomes_of(read(tmp_path))[0][2], life.state.revised_turns) == ("ok", 0)
    life.end()


def test_late_stage_that_begins_earlier_makes_no_second_row(tmp_path: Path) -> None:
    """The store identifies rows by their ids and their beginning."""
    clock = Clock()
    life = Life(tmp_path, clock)
    *stages, own = FOUR[0].spans()
    life.commit(pipecat_request([own]))
    life.turns.refresh()
    assert life.state.framework_spans_open == 0
    for stage in stages:
        stage.parent_span_id = own.span_id
        stage.start_time_unix_nano -= 3 * S
    life.commit(pipecat_request(stages))
    life.turns.refresh()
    (revised,) = read(tmp_path)
    assert (revised.span_id, revised.started_unix_ns) == (FOUR[0].span, FOUR[0].start_unix_ns - 3 * S)
    life.end()
    life = Life(tmp_path, clock)
    life.turns.close()
    assert read(tmp_path) == [revised]
    life.end()


@pytest.mark.parametrize("scope_name", ["mine\0", "\0mine", "mi\0ne"])
def test_a_nul_in_a_name_loses_no_turn(tmp_path: Path, scope_name: str) -> None:
    life = Life(tmp_path, Clock())
    request = ExportTraceServiceRequest.FromString(pipecat_request(FOUR[0].spans()))
    (own,) = request.resource_spans[0].scope_spans[0].spans
    own.name = "voice.turn"
    own.attributes.add(key="voice\0").value.string_value = "a\0b"
    own.events.add(name="voice.asr\0final", time_unix_nano=own.start_time_unix_nano)
    request.resource_spans[0].scope_spans[0].scope.name = scope_name
    life.commit(request.SerializeToString())
    life.turns.close()
    assert [turn.span_id for turn in read(tmp_path)] == [FOUR[0].span]
    assert life.faults.all() == ()
    life.end()
