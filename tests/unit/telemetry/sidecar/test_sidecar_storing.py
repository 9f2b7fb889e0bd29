"""A group of requests in one transaction: what one of them holds, or the disk refuses, harms no other."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from telemetry.model.errors import StoreError
from telemetry.sidecar.counts.exposition import Exposition
from telemetry.sidecar.counts.state import IngestState
from telemetry.sidecar.faults import ROOM_BYTES_MIN, FaultBoard, StoreWatch
from telemetry.sidecar.forwarding.bounded_queue import Received
from telemetry.sidecar.forwarding.forwarder import Forwarding
from telemetry.sidecar.ingest import ExportRequest, Outcome, Taken
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.privacy import redactor_of_store
from telemetry.sidecar.service_turns import ServiceTurns
from telemetry.sidecar.storing import Counts, GroupStages
from telemetry.store.reader import StoreReader
from telemetry.store.writer import StoreWriter
from tests.fixtures_sidecar import turns_json, turns_request
from tests.fixtures_turns import client_turn

BAD = ExportRequest("traces", "protobuf", b"\xff")


class _Stored:
    """All that a group goes through, with what is forwarded of it."""

    def __init__(self, directory: Path) -> None:
        self.writer = StoreWriter(directory)
        self.faults = FaultBoard()
        self.state = IngestState()
        counts = Counts(self.state, Exposition(state=self.state), self.faults)
        self.watch = StoreWatch(self.writer, self.faults)
        self.forwarded: list[Received] = []
        forwarding = Forwarding(directory, (), self.faults)
        forwarding.add = self.forwarded.extend  # type: ignore[method-assign]
        turns = ServiceTurns(self.writer, counts.stored, self.state, self.faults)
        self.groups = GroupStages(
            self.writer, redactor_of_store(directory), counts, turns, forwarding=forwarding, watch=self.watch
        )

    def store(self, requests: Sequence[ExportRequest]) -> Sequence[Outcome]:
        outcomes = self.groups.commit([self.groups.decode(request) for request in requests])
        self.groups.count()
        return outcomes

    @property
    def trace_ids(self) -> list[str]:
        return [turn.trace_id for turn in StoreReader(self.writer.directory).turns()]


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[_Stored]:
    storing = _Stored(tmp_path)
    yield storing
    storing.writer.close()


def _request(index: int) -> ExportRequest:
    return ExportRequest("traces", "protobuf", turns_request([client_turn(index)]).SerializeToString())


def test_bad_request_harms_no_other_and_one_commit_stores_rest(stored: _Stored) -> None:
    before = stored.writer.commits
    json = ExportRequest("traces", "json", turns_json([client_turn(2)]))
    no_json = ExportRequest("metrics", "json", b"[")
    one, bad, two, also_bad = stored.store([_request(1), BAD, json, no_json])
    assert (one, two) == (Taken(), Taken())
    assert isinstance(bad, OtlpDecodeError)
    assert isinstance(also_bad, OtlpDecodeError)
    assert stored.writer.commits == before + 1
    assert sorted(stored.trace_ids) == sorted(client_turn(index).trace_id for index in (1, 2))
    assert (stored.state.requests, stored.state.stored_turns) == (2, 2)
    assert [batch.items for batch in stored.forwarded] == [1, 1]


def test_write_refused_by_disk_is_to_be_retried_and_counted_once(
    stored: _Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: Any) -> None:
        raise duckdb.IOException("IO Error: could not write: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(StoreWriter, "_insert", full)
        refused, bad = stored.store([_request(1), BAD])
        assert isinstance(refused, StoreError)
        assert "the disk is full" in str(refused)
        assert isinstance(bad, OtlpDecodeError), "it is not worth sending again"
    assert (stored.trace_ids, stored.forwarded, stored.state.received) == ([], [], 0)
    assert [(fault.name, fault.stops_storing) for fault in stored.faults.all()] == [("commit", True)]
    stored.watch.refresh()
    assert stored.faults.all() == (), "it is known to be writable before anybody sends"
    assert stored.store([_request(1)]) == [Taken()]
    assert (stored.state.received, stored.state.stored_turns, len(stored.forwarded)) == (1, 1, 1)


@pytest.mark.parametrize("poisonous", [0, 3, 4])
def test_request_that_cannot_be_stored_prevents_no_other(
    stored: _Stored, monkeypatch: pytest.MonkeyPatch, poisonous: int
) -> None:
    append = StoreWriter.append_tables
    trace_id = client_turn(poisonous).trace_id

    def fussy(self: StoreWriter, turns: Any, spans: Any, points: Any) -> Any:
        if trace_id in turns.column("trace_id").to_pylist():
            raise ValueError("not this one")
        return append(self, turns, spans, points)

    monkeypatch.setattr(StoreWriter, "append_tables", fussy)
    outcomes = stored.store([_request(index) for index in range(5)])
    assert [isinstance(outcome, OtlpDecodeError) for outcome in outcomes] == [n == poisonous for n in range(5)]
    assert len(stored.trace_ids) == 4
    assert trace_id not in stored.trace_ids
    assert stored.faults.all() == (), "it is no fault of the store"


def test_a_disk_that_will_be_full_soon_is_named(stored: _Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = ROOM_BYTES_MIN - 1

    with monkeypatch.context() as patched:
        patched.setattr("shutil.disk_usage", lambda _path: Usage())
        stored.watch.refresh()
        assert [(fault.name, fault.stops_storing) for fault in stored.faults.all()] == [("room", False)]
    stored.watch.refresh()
    assert stored.faults.all() == ()
