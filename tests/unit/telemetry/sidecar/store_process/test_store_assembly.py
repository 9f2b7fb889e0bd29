"""Turns of services from committed spans: each once, whatever ends the process."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model.errors import StoreError
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.turn_assembly import GRACE_NS, TurnAssembly
from telemetry.sidecar.ingest_state import IngestState
from telemetry.sidecar.messages import Faults
from telemetry.sidecar.otlp.tables import decode_traces
from telemetry.sidecar.store_process import assembly as assembly_module
from telemetry.sidecar.store_process.assembly import RECOVERED_NS, ServiceTurns
from telemetry.sidecar.store_process.fault_board import FaultBoard
from telemetry.store.reader import StoreReader
from telemetry.store.writer import AppendedTables, StoreWriter
from tests.fixtures_frameworks import PipecatTurn, pipecat_request
from tests.fixtures_sidecar import turns_request
from tests.fixtures_turns import client_turn

S = 1_000_000_000


class Life:
    """A store process's life as far as turns of services are concerned; ends without a farewell."""

    def __init__(self, directory: Path, clock: Callable[[], int]) -> None:
        self.faults: list[Faults] = []
        self.state = IngestState()
        self.stored: list[AppendedTables] = []
        self.writer = StoreWriter(directory, unix_ns=clock)
        self.turns = ServiceTurns(
            self.writer, self.stored.append, self.state, FaultBoard(self.faults.append), unix_ns=clock
        )
        self.turns.recover()

    def commit(self, body: bytes) -> None:
        tables = decode_traces([body])
        self.turns.take(self.writer.append_tables(tables.turns, tables.spans, tables.points).spans)

    def end(self) -> None:
        self.writer.close()


class Clock:
    def __init__(self) -> None:
        self.unix_ns = 1_794_400_000 * S

    def __call__(self) -> int:
        return self.unix_ns


def read(directory: Path) -> list[Turn]:
    with StoreReader(directory) as reader:
        assert reader.faults == ()
        return reader.turns()


def spans_of(turns: Sequence[PipecatTurn]) -> list[Span]:
    return [span for turn in turns for span in turn.spans()]


FOUR = [PipecatTurn(call, index) for call in (0, 1) for index in (0, 1)]


def test_committed_spans_become_turns_when_they_are_due(tmp_path: Path) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    life.commit(pipecat_request(spans_of(FOUR)))
    life.turns.look()
    assert read(tmp_path) == []
    clock.unix_ns += GRACE_NS
    life.turns.look()
    found = read(tmp_path)
    assert sorted((turn.call_id, turn.turn_index) for turn in found) == [
        (f"conversation-{call}", index) for call in (0, 1) for index in (0, 1)
    ]
    assert {(turn.source, turn.run_id) for turn in found} == {("service", "service:bot:2026-11-11")}
    assert sum(each.turns.num_rows for each in life.stored) == 4
    life.end()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_each_turn_is_stored_once_in_any_order_with_duplicates_and_lives_that_end(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    clock = Clock()
    life = Life(tmp_path, clock)
    spans = spans_of(FOUR) * 2
    chance.shuffle(spans)
    for span in spans:
        life.commit(pipecat_request([span]))
        clock.unix_ns += chance.randrange(0, 4 * S)
        if chance.random() < 0.7:
            life.turns.look()
        if chance.random() < 0.2:
            life.end()
            life = Life(tmp_path, clock)
    life.turns.close()
    life.end()
    found = read(tmp_path)
    assert sorted((turn.trace_id, turn.span_id) for turn in found) == sorted((each.trace, each.span) for each in FOUR)


def test_a_turn_that_was_open_when_the_process_ended_is_found_again_however_late_that_is(tmp_path: Path) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    life.commit(pipecat_request(spans_of(FOUR[:1])))
    life.end()
    clock.unix_ns += 10 * RECOVERED_NS
    life = Life(tmp_path, clock)
    clock.unix_ns += GRACE_NS
    life.turns.look()
    assert len(read(tmp_path)) == 1
    life.end()


def test_what_was_stored_long_before_the_last_commit_is_not_read_again(tmp_path: Path) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    life.commit(pipecat_request(spans_of(FOUR[:1])))
    clock.unix_ns += RECOVERED_NS + 1
    life.commit(pipecat_request(spans_of(FOUR[2:3])))
    life.end()
    life = Life(tmp_path, clock)
    life.turns.close()
    assert [turn.call_id for turn in read(tmp_path)] == ["conversation-1"]
    life.end()


def test_turns_that_cannot_be_stored_now_are_stored_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    life.commit(pipecat_request(spans_of(FOUR)))
    clock.unix_ns += GRACE_NS
    with monkeypatch.context() as patch:

        def full(*_: object) -> AppendedTables:
            raise StoreError("no room")

        patch.setattr(life.writer, "append", full)
        life.turns.look()
        life.commit(pipecat_request(spans_of([PipecatTurn(2, 0)])))
        clock.unix_ns += GRACE_NS
        life.turns.look()
    assert [fault.name for fault in life.faults[-1].faults] == ["service_turns"]
    life.turns.look()
    assert len(read(tmp_path)) == 5
    assert life.faults[-1].faults == ()
    life.end()


def test_a_span_that_cannot_be_read_harms_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fussy(TurnAssembly):
        def add(self, spans: Sequence[SpanRow], now_unix_ns: int) -> None:
            if any(span.span_id == FOUR[0].span for span in spans):
                raise ValueError("not this one")
            super().add(spans, now_unix_ns)

    monkeypatch.setattr(assembly_module, "TurnAssembly", Fussy)
    life = Life(tmp_path, Clock())
    life.commit(pipecat_request(spans_of(FOUR)))
    life.turns.close()
    assert len(read(tmp_path)) == 3
    assert "not this one" in life.faults[-1].faults[0].sentence
    life.end()


def test_our_own_spans_never_become_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(row: object) -> None:
        raise AssertionError(row)

    monkeypatch.setattr(assembly_module, "span_from_row", refused)
    life = Life(tmp_path, Clock())
    life.commit(turns_request([client_turn(1)]).SerializeToString())
    life.turns.close()
    assert life.faults == []
    assert [turn.source for turn in read(tmp_path)] == ["client"]
    life.end()


def test_what_came_late_does_not_make_a_stored_turn_another_one(tmp_path: Path) -> None:
    clock = Clock()
    life = Life(tmp_path, clock)
    *stages, own = FOUR[0].spans()
    life.commit(pipecat_request([own]))
    assert life.state.framework_spans_open == 1
    clock.unix_ns += GRACE_NS
    life.turns.look()
    assert life.state.framework_spans_open == 0
    (stored,) = read(tmp_path)
    # With these the turn would begin earlier, and the store tells rows apart by their ids and their beginning.
    for stage in stages:
        stage.parent_span_id = own.span_id
        stage.start_time_unix_nano -= 3 * S
    life.commit(pipecat_request(stages))
    assert life.state.framework_spans_late == len(stages), "they are shown, though they are part of no turn"
    life.end()
    life = Life(tmp_path, clock)
    life.turns.close()
    assert read(tmp_path) == [stored]
    life.end()
