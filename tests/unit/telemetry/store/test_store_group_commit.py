"""Group commit: who waits is told the truth, and one bad request does not take its neighbors with it."""

import asyncio
import threading
from pathlib import Path

import pytest

from telemetry.model.errors import StoreError
from telemetry.sidecar.otlp.decode import Decoded
from telemetry.sidecar.otlp.ingest import Ingest
from telemetry.store.group_commit import GroupCommit, Overloaded
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import AppendedTables, StoreWriter
from tests.fixtures_turns import client_turn


class _HeldWriter(StoreWriter):
    """A writer whose disk is as slow as the test wants."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.entered, self.go = threading.Event(), threading.Event()
        self.appends = 0

    def append(self, batch: Batch) -> AppendedTables:
        self.appends += 1
        self.entered.set()
        assert self.go.wait(30)
        return super().append(batch)


def test_requests_that_wait_share_one_append(tmp_path: Path) -> None:
    with _HeldWriter(tmp_path) as writer:
        commit = GroupCommit(writer, window_s=5.0)
        futures = [commit.submit(Batch(turns=[client_turn(index)])) for index in range(5)]
        writer.go.set()
        commit.close()
        assert [future.result(timeout=0) for future in futures] == [None] * 5
        assert (writer.appends, len(writer.manifest.segments)) == (1, 1)


def test_nothing_is_acknowledged_before_it_is_written(tmp_path: Path) -> None:
    with _HeldWriter(tmp_path) as writer:
        commit = GroupCommit(writer, window_s=0.0)
        future = commit.submit(Batch(turns=[client_turn(0)]))
        assert writer.entered.wait(30)
        assert not future.done()
        writer.go.set()
        assert future.result(timeout=30) is None
        commit.close()


def test_more_than_may_wait_is_sent_back_at_once(tmp_path: Path) -> None:
    with _HeldWriter(tmp_path) as writer:
        commit = GroupCommit(writer, window_s=0.0, pending_rows_max=2)
        first = commit.submit(Batch(turns=[client_turn(0), client_turn(1), client_turn(2)]))  # alone it may be large
        with pytest.raises(Overloaded, match="send it again"):
            commit.submit(Batch(turns=[client_turn(3)]))
        writer.go.set()
        first.result(timeout=30)
        commit.submit(Batch(turns=[client_turn(3)])).result(timeout=30)
        commit.close()
        with pytest.raises(Overloaded, match="closing"):
            commit.submit(Batch(turns=[client_turn(4)]))


def test_one_request_that_cannot_be_written_fails_alone(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        commit = GroupCommit(writer, window_s=5.0)
        good = commit.submit(Batch(turns=[client_turn(0)]))
        bad = commit.submit(Batch(turns=[client_turn(1, speech_end_perf_ns=2**80)]))
        after = commit.submit(Batch(turns=[client_turn(2)]))
        commit.close()
        assert (good.result(timeout=0), after.result(timeout=0)) == (None, None)
        assert isinstance(bad.exception(timeout=0), OverflowError)
    with StoreReader(tmp_path) as reader:
        assert [turn.sequence for turn in reader.turns()] == [0, 2]


def test_a_sender_that_goes_away_does_not_undo_what_it_sent(tmp_path: Path) -> None:
    async def leave(ingest: Ingest, writer: _HeldWriter) -> None:
        waiting = asyncio.create_task(ingest.take(Decoded(turns=[client_turn(0)], received=1)))
        await asyncio.to_thread(writer.entered.wait, 30)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        writer.go.set()
        await ingest.take(Decoded(turns=[client_turn(1)], received=1))

    with _HeldWriter(tmp_path) as writer:
        heard: list[int | None] = []
        ingest = Ingest(writer, on_turns=lambda turns: heard.extend(turn.sequence for turn in turns))
        asyncio.run(leave(ingest, writer))
        ingest.close()
    assert heard == [0, 1]
    with StoreReader(tmp_path) as reader:
        assert len(reader.turns()) == 2


def test_a_full_disk_is_reported_to_everybody_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: StoreWriter, _batch: Batch) -> AppendedTables:
        raise StoreError("the disk is full")

    with StoreWriter(tmp_path) as writer:
        ingest = Ingest(writer)
        with monkeypatch.context() as patch:
            patch.setattr(StoreWriter, "append", full)
            with pytest.raises(StoreError, match="the disk is full"):
                asyncio.run(ingest.take(Decoded(turns=[client_turn(0)], received=1)))
        asyncio.run(ingest.take(Decoded(turns=[client_turn(0)], received=1)))
        ingest.close()
        assert (ingest.state.refused_requests, ingest.state.requests, ingest.state.stored_turns) == (1, 1, 1)


def test_names_from_outside_are_bounded(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        ingest = Ingest(writer)
        for index in range(600):
            decoded = Decoded(received=1)
            decoded.unmapped[f"span-{index}"] = 1
            asyncio.run(ingest.take(decoded))
        ingest.close()
        assert len(ingest.state.unmapped_spans) == 501
        assert ingest.state.unmapped_spans["(other)"] == 100
