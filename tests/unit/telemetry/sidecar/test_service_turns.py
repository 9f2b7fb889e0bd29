"""Turns of services from committed spans: each once, whatever ends the process."""

import random
from collections.abc import Callable, Iterator, Sequence
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
from tests.nightly import nightly_after

S = 1_000_000_000


class Life:
    """A sidecar's life as far as turns of services are concerned."""

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


class Sidecars:
    """The lives of one store's sidecars, one after the other, and their clock."""

    def __init__(self, directory: Path) -> None:
        self.unix_ns = 1_794_400_000 * S
        self._directory = directory
        self._life: Life | None = None

    def begin(self) -> Life:
        """The next life; the one before it has ended."""
        self.end()
        self._life = Life(self._directory, lambda: self.unix_ns)
        return self._life

    def stored(self) -> list[Turn]:
        with StoreReader(self._directory) as reader:
            return reader.turns()

    def end(self) -> None:
        if self._life is not None:
            self._life.writer.close()


@pytest.fixture
def sidecars(tmp_path: Path) -> Iterator[Sidecars]:
    lives = Sidecars(tmp_path)
    yield lives
    lives.end()


def spans_of(turns: Sequence[PipecatTurn]) -> list[Span]:
    return [span for turn in turns for span in turn.spans()]


FOUR = [PipecatTurn(call, index) for call in (0, 1) for index in (0, 1)]


def test_committed_spans_are_turns_at_once(sidecars: Sidecars) -> None:
    life = sidecars.begin()
    life.commit(pipecat_request(spans_of(FOUR)))
    life.turns.refresh()
    turns = sidecars.stored()
    assert sorted((turn.call_id, turn.turn_index) for turn in turns) == [
        (f"conversation-{call}", index) for call in (0, 1) for index in (0, 1)
    ]
    assert {(turn.source, turn.run_id, turn.outcome) for turn in turns} == {("service", "service:bot:2026-11-11", "ok")}
    assert sum(map(len, life.stored)) == 4


def test_turn_is_pending_until_its_own_span_comes(sidecars: Sidecars) -> None:
    life = sidecars.begin()
    *stages, own = FOUR[1].spans()
    for stage in stages:
        stage.parent_span_id = own.span_id
    life.commit(pipecat_request(stages))
    life.turns.refresh()
    (pending,) = sidecars.stored()
    assert (pending.outcome, pending.span_id, life.stored) == ("pending", FOUR[1].span, [])
    sidecars.unix_ns += S
    life = sidecars.begin()
    life.commit(pipecat_request([own]))
    life.turns.refresh()
    (turn,) = sidecars.stored()
    assert (turn.outcome, turn.span_id, turn.late_spans) == ("ok", FOUR[1].span, None)
    assert [*map(len, life.stored)] == [1]
    assert life.revised == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", nightly_after(3, range(5)))
def test_turns_are_stored_once_in_any_order_across_restarts(sidecars: Sidecars, seed: int) -> None:
    chance = random.Random(seed)
    life = sidecars.begin()
    spans = spans_of(FOUR) * 2
    chance.shuffle(spans)
    for span in spans:
        life.commit(pipecat_request([span]))
        sidecars.unix_ns += chance.randrange(0, 4 * S)
        if chance.random() < 0.7:
            life.turns.refresh()
        if chance.random() < 0.2:
            life = sidecars.begin()
    life.turns.close()
    turns = sidecars.stored()
    assert sorted((turn.trace_id, turn.span_id) for turn in turns) == sorted(
        (identity.trace, identity.span) for identity in FOUR
    )


def test_turn_not_stored_at_exit_is_recovered_at_any_later_time(sidecars: Sidecars) -> None:
    life = sidecars.begin()
    life.commit(pipecat_request(spans_of(FOUR[:1])))
    sidecars.unix_ns += 10 * UPDATED_WITHIN_NS
    life = sidecars.begin()
    assert len(sidecars.stored()) == 1


@pytest.mark.slow
def test_old_spans_are_read_again_when_more_of_the_turn_comes(sidecars: Sidecars) -> None:
    life = sidecars.begin()
    *stages, own = without_latency(FOUR[1])
    life.commit(pipecat_request([own]))
    life.turns.close()
    sidecars.unix_ns += UPDATED_WITHIN_NS - S
    life.commit(pipecat_request(FOUR[2].spans()))
    life.turns.refresh()
    life = sidecars.begin()
    assert life.state.framework_spans_open == 0
    life.commit(pipecat_request(stages))
    life.turns.refresh()
    assert [(turn.span_id, turn.outcome, turn.late_spans) for turn in sidecars.stored() if turn.outcome == "ok"] == [
        (FOUR[2].span, "ok", None),
        (FOUR[1].span, "ok", None),
    ][::-1]
    assert life.state.revised_turns == 1


def test_stages_that_come_after_a_day_double_no_turn(sidecars: Sidecars) -> None:
    life = sidecars.begin()
    *stages, own = without_latency(FOUR[1])
    life.commit(pipecat_request([own]))
    life.turns.close()
    sidecars.unix_ns += 2 * UPDATED_WITHIN_NS
    life = sidecars.begin()
    sidecars.unix_ns += REMEMBERED_NS + S
    life.commit(pipecat_request(FOUR[2].spans()))
    life.turns.refresh()
    life.commit(pipecat_request(stages))
    life.turns.refresh()
    assert sorted(turn.span_id for turn in sidecars.stored()) == sorted([FOUR[1].span, FOUR[2].span])


def test_turns_that_cannot_be_stored_now_are_stored_later(sidecars: Sidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    life = sidecars.begin()
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
    assert len(sidecars.stored()) == 5
    assert life.faults.all() == ()


def test_a_turn_that_cannot_be_read_harms_no_other(sidecars: Sidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    make = turn_assembly.framework_turn

    def fussy(spans: SpansOfTurn, framework: Framework) -> Turn | None:
        if spans.first.span.span_id == FOUR[0].span:
            raise ValueError("not this one")
        return make(spans, framework)

    monkeypatch.setattr(turn_assembly, "framework_turn", fussy)
    life = sidecars.begin()
    life.commit(pipecat_request(spans_of(FOUR)))
    life.turns.close()
    assert len(sidecars.stored()) == 3
    assert "not this one" in life.faults.all()[0].sentence


def test_turn_that_cannot_be_stored_harms_no_other(sidecars: Sidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    life = sidecars.begin()
    replace_turns = life.writer.replace_turns

    def fussy(changes: Sequence[TurnChange]) -> Sequence[Turn]:
        if any(change.turn is not None and change.turn.span_id == FOUR[1].span for change in changes):
            raise ValueError("not this one")
        return replace_turns(changes)

    monkeypatch.setattr(life.writer, "replace_turns", fussy)
    life.commit(pipecat_request(spans_of(FOUR)))
    life.turns.refresh()
    assert sorted(turn.span_id for turn in sidecars.stored()) == sorted(
        identity.span for identity in FOUR if identity is not FOUR[1]
    )
    assert sum(map(len, life.stored)) == 3
    assert "not this one" in life.faults.all()[0].sentence
    life.turns.refresh()
    assert sum(map(len, life.stored)) == 3, "it is not tried again"


def test_our_own_spans_never_become_objects(sidecars: Sidecars, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(row: object) -> None:
        raise AssertionError(row)

    monkeypatch.setattr(module, "span_from_row", refused)
    life = sidecars.begin()
    life.commit(turns_request([client_turn(1)]).SerializeToString())
    life.turns.close()
    assert life.faults.all() == ()
    assert [turn.source for turn in sidecars.stored()] == ["client"]


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


def test_turn_with_late_stages_is_judged_again(sidecars: Sidecars) -> None:
    """14 s after its own span: "no reply" was wrong."""
    life = sidecars.begin()
    *stages, own = without_latency(FOUR[1])
    life.commit(pipecat_request([own, *FOUR[2].spans()]))
    life.turns.refresh()
    sidecars.unix_ns += COMPLETE_AFTER_NS
    life.turns.refresh()
    other = FOUR[2].trace, FOUR[2].span, "ok", None
    assert sorted(outcomes_of(sidecars.stored())) == [(FOUR[1].trace, FOUR[1].span, "no_reply", None), other]
    sidecars.unix_ns += 4 * S
    life.commit(pipecat_request(stages))
    life.turns.refresh()
    assert sorted(outcomes_of(sidecars.stored())) == [(FOUR[1].trace, FOUR[1].span, "ok", 3), other]
    assert (life.state.framework_spans_late, life.state.revised_turns) == (3, 1)
    assert [[turn.outcome for turn in turns] for turns in life.revised] == [["ok"]]
    assert sum(map(len, life.stored)) == 2, "each turn is counted once"
    life.turns.refresh()
    assert life.state.revised_turns == 1


@pytest.mark.slow
def test_a_turn_is_the_same_after_a_restart_whatever_came_late(sidecars: Sidecars) -> None:
    life = sidecars.begin()
    *stages, own = without_latency(FOUR[1])
    life.commit(pipecat_request([own]))
    life.turns.refresh()
    sidecars.unix_ns += COMPLETE_AFTER_NS
    life.turns.refresh()
    life.commit(pipecat_request(stages))  # and the process is killed before it looks
    life = sidecars.begin()
    life.turns.close()
    assert outcomes_of(sidecars.stored()) == [(FOUR[1].trace, FOUR[1].span, "ok", None)]
    assert life.state.revised_turns == 1
    life = sidecars.begin()
    life.turns.close()
    assert (outcomes_of(sidecars.stored())[0][2], life.state.revised_turns) == ("ok", 0)


def test_late_stage_that_begins_earlier_makes_no_second_row(sidecars: Sidecars) -> None:
    """The store identifies rows by their ids and their beginning."""
    life = sidecars.begin()
    *stages, own = FOUR[0].spans()
    life.commit(pipecat_request([own]))
    life.turns.refresh()
    assert life.state.framework_spans_open == 0
    for stage in stages:
        stage.parent_span_id = own.span_id
        stage.start_time_unix_nano -= 3 * S
    life.commit(pipecat_request(stages))
    life.turns.refresh()
    (revised,) = sidecars.stored()
    assert (revised.span_id, revised.started_unix_ns) == (FOUR[0].span, FOUR[0].start_unix_ns - 3 * S)
    life = sidecars.begin()
    life.turns.close()
    assert sidecars.stored() == [revised]


@pytest.mark.parametrize("scope_name", ["mine\0", "\0mine", "mi\0ne"])
def test_a_nul_in_a_name_loses_no_turn(sidecars: Sidecars, scope_name: str) -> None:
    life = sidecars.begin()
    request = ExportTraceServiceRequest.FromString(pipecat_request(FOUR[0].spans()))
    (own,) = request.resource_spans[0].scope_spans[0].spans
    own.name = "voice.turn"
    own.attributes.add(key="voice\0").value.string_value = "a\0b"
    own.events.add(name="voice.asr\0final", time_unix_nano=own.start_time_unix_nano)
    request.resource_spans[0].scope_spans[0].scope.name = scope_name
    life.commit(request.SerializeToString())
    life.turns.close()
    assert [turn.span_id for turn in sidecars.stored()] == [FOUR[0].span]
    assert life.faults.all() == ()
