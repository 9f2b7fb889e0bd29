"""Retention: what was stored too long ago or is too much goes, the oldest first, in portions, and is counted."""

from pathlib import Path

import pytest

from telemetry.model.errors import StoreError
from telemetry.store.answers import Filter
from telemetry.store.check import check
from telemetry.store.connection import StoreConnection
from telemetry.store.database import read_only
from telemetry.store.questions.runs import cut_runs
from telemetry.store.reader import StoreReader
from telemetry.store.retention import Keep, Retention, used_bytes_of
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import (
    SECOND,
    START_UNIX_NS,
    client_turn,
    exchange,
    generator_points,
    stage_spans,
    synthetic_run,
)

HOUR = 3_600 * SECOND


class _Clock:
    """A wall clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.unix_ns = START_UNIX_NS

    def __call__(self) -> int:
        return self.unix_ns


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


def _hourly(writer: StoreWriter, clock: _Clock, count: int, **changes: object) -> None:
    """A turn each hour, stored as it begins."""
    for index in range(count):
        clock.unix_ns = START_UNIX_NS + index * HOUR
        writer.append(Batch([client_turn(index, started_unix_ns=clock.unix_ns, **changes)]))


def _sequences(directory: Path) -> list[int]:
    with read_only(directory) as database, database.snapshot() as cursor:
        return [sequence for (sequence,) in cursor.execute("SELECT sequence FROM turns ORDER BY 1").fetchall()]


def test_expired_rows_are_removed_in_portions_oldest_first(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        _hourly(writer, clock, 10)
        retention = Retention(writer, Keep(age_ns=3 * HOUR), portion_rows=4, unix_ns=clock)
        assert [retention.remove_some() for _ in range(3)] == [4, 2, 0]
    assert _sequences(tmp_path) == [6, 7, 8, 9]
    removed = check(tmp_path).removed["turns"]
    assert (removed.rows, removed.until_unix_ns) == (6, START_UNIX_NS + 5 * HOUR)


def test_a_sender_s_clock_neither_keeps_nor_removes_anything(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        writer.append(Batch([client_turn(0, started_unix_ns=START_UNIX_NS + 1_000 * HOUR)]))
        clock.unix_ns += 5 * HOUR
        writer.append(Batch([client_turn(1, started_unix_ns=START_UNIX_NS - 1_000 * HOUR)]))
        assert Retention(writer, Keep(age_ns=HOUR), unix_ns=clock).remove_some() == 1
    assert _sequences(tmp_path) == [1]
    assert check(tmp_path).removed["turns"].until_unix_ns == START_UNIX_NS, "no later than when it was stored"


def test_every_table_is_removed_from(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        turn, _ = exchange(0)
        writer.append(Batch([turn], stage_spans(turn), generator_points("run-1", 3)))
        clock.unix_ns += 2 * HOUR
        retention = Retention(writer, Keep(age_ns=HOUR), unix_ns=clock)
        while retention.remove_some():
            pass
    result = check(tmp_path)
    assert set(result.rows.values()) == {0}
    assert set(result.removed) == {"turns", "spans", "points"}


def test_without_a_limit_everything_stays(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        _hourly(writer, clock, 3)
        clock.unix_ns += 10_000 * HOUR
        assert Retention(writer, Keep(), unix_ns=clock).remove_some() == 0


def test_run_that_lost_some_turns_is_named_until_all_are_gone(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        writer.append(Batch([client_turn(0, run_id="old")]))
        writer.append(Batch([client_turn(1, run_id="half")]))
        clock.unix_ns += 2 * HOUR
        writer.append(Batch([client_turn(2, run_id="half"), client_turn(3, run_id="new")]))
        retention = Retention(writer, Keep(age_ns=HOUR), portion_rows=1, unix_ns=clock)
        while retention.remove_some():
            pass
        with writer.database.snapshot() as cursor:
            assert cut_runs(StoreConnection(cursor, tmp_path)) == {"half"}
        clock.unix_ns += 2 * HOUR
        while retention.remove_some():
            pass
        with writer.database.snapshot() as cursor:
            assert cut_runs(StoreConnection(cursor, tmp_path)) == frozenset()
        writer.append(Batch([client_turn(4, run_id="half")]))
        with writer.database.snapshot() as cursor:
            assert cut_runs(StoreConnection(cursor, tmp_path)) == {"half"}, "more of it came"
    removed = check(tmp_path).removed["turns"]
    assert (removed.rows, removed.run_ids) == (4, ("half",))


@pytest.mark.slow
def test_removed_turns_are_no_lost_telemetry(tmp_path: Path, clock: _Clock) -> None:
    run = synthetic_run(turns=60)
    turns = sorted(run.turns, key=lambda turn: turn.started_unix_ns)
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        writer.append(Batch(turns[:60]))
        clock.unix_ns += 2 * HOUR
        writer.append(Batch(turns[60:90] + turns[92:], run.spans, run.points))
        retention = Retention(writer, Keep(age_ns=HOUR), unix_ns=clock)
        while retention.remove_some():
            pass
    with StoreReader(tmp_path, wall_clock_ns=clock) as reader:
        loss = reader.summary(Filter(run_id="run-1")).loss
    assert (loss.received, loss.missing) == (58, 2)


@pytest.mark.slow
def test_excess_rows_are_removed_oldest_first_to_size_limit(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        run = synthetic_run("template", 200)
        writer.append(Batch(run.turns))
        for number in range(10, 16):
            with writer.change() as cursor:
                # Rows that cannot be squeezed into less than they are.
                cursor.execute(
                    f"""
                    INSERT INTO turns SELECT turns.* REPLACE (
                        'run-{number}' AS run_id, uuid()::VARCHAR AS span_id, uuid()::VARCHAR AS trace_id,
                        {number} AS commit_number, stored_unix_ns + {number} * {HOUR} AS stored_unix_ns)
                    FROM turns, range(41) WHERE run_id = 'template'
                    """  # noqa: S608
                )
        writer.checkpoint()
        with writer.database.snapshot() as cursor:
            used = used_bytes_of(cursor)
        retention = Retention(writer, Keep(size_bytes=used // 2), portion_rows=5_000, unix_ns=clock)
        for _ in range(100):
            if not retention.remove_some():
                break
        with writer.database.snapshot() as cursor:
            runs = [run for (run,) in cursor.execute("SELECT DISTINCT run_id FROM turns ORDER BY 1").fetchall()]
            assert used_bytes_of(cursor) <= 1.1 * (used // 2)
    assert runs == [f"run-{number}" for number in range(16 - len(runs), 16)], "the newest are left"
    assert 2 <= len(runs) <= 3, "and no more went than must"


def test_a_store_that_cannot_be_written_keeps_its_rows(
    tmp_path: Path, clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        _hourly(writer, clock, 3)
        clock.unix_ns += 10 * HOUR

        def refuse(_self: StoreWriter) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(StoreWriter, "_count_commit", refuse)
        with pytest.raises(StoreError, match="the disk is full"):
            Retention(writer, Keep(age_ns=HOUR), unix_ns=clock).remove_some()
    assert _sequences(tmp_path) == [0, 1, 2]
    assert check(tmp_path).removed == {}
