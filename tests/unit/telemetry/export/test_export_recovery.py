"""What was left in the logs is brought home once: requests as they were, turns as the same turns."""

import logging
import os
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given

from telemetry.export.recovery import ReplayResult, replay
from telemetry.export.spool import Spool, SpoolRecord
from telemetry.export.turn_log import TurnLog
from telemetry.export.wal import LogFile, LogRecord
from telemetry.model.contradictions import of_timestamps, without_contradictions
from telemetry.model.turns import Turn, with_plain_texts
from tests.fixtures_sidecar import decoded_traces
from tests.fixtures_turns import client_turn, exchange
from tests.strategies_turns import turns


def record(number: int, spans: int = 2) -> SpoolRecord:
    return SpoolRecord("traces", spans, f"payload {number} ".encode() * 5)


def replayed(directory: Path) -> list[SpoolRecord]:
    taken: list[SpoolRecord] = []
    replay(directory, lambda entry: taken.append(entry) is None)
    return taken


@pytest.mark.parametrize("cut", [1, 5, 12, 40])
def test_a_torn_tail_ends_the_log(tmp_path: Path, cut: int) -> None:
    spool = Spool(tmp_path, "one")
    spool.append(record(0))
    spool.append(record(1))
    spool.close()
    (path,) = tmp_path.glob("*.wal")
    os.truncate(path, path.stat().st_size - cut)
    taken: list[SpoolRecord] = []
    result = replay(tmp_path, lambda entry: taken.append(entry) is None)
    assert taken == [record(0)]
    assert result == ReplayResult(records=1, spans=2)
    assert list(tmp_path.iterdir()) == []


def test_a_flipped_bit_is_not_taken_for_data(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one")
    spool.append(record(0))
    spool.close()
    (path,) = tmp_path.glob("*.wal")
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    path.write_bytes(blob)
    assert replayed(tmp_path) == []


def test_a_refused_record_stays_with_all_after_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one")
    for number in range(3):
        spool.append(record(number))
    spool.close()
    answers = iter([True, False])
    found = replay(tmp_path, lambda _: next(answers), lambda entry: 1 + (entry == record(0)))
    assert found == ReplayResult(records=1, spans=2, left=2, turns=2, left_spans=4, left_turns=2)
    assert replayed(tmp_path) == [record(1), record(2)]


def test_a_failing_sink_loses_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one")
    spool.append(record(0))
    spool.append(record(1))
    spool.close()
    calls = 0

    def sink(_: SpoolRecord) -> bool:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("store gone")
        return True

    with pytest.raises(RuntimeError, match="store gone"):
        replay(tmp_path, sink)
    assert replayed(tmp_path) == [record(1)]


def test_nothing_to_replay_where_there_is_no_directory(tmp_path: Path) -> None:
    assert replay(tmp_path / "none", lambda _: True) == ReplayResult()


@pytest.mark.slow
@given(turns())
def test_a_turn_that_is_brought_home_is_the_turn_that_was_emitted(turn: Turn) -> None:
    turn = msgspec.structs.replace(turn, started_unix_ns=max(1, turn.started_unix_ns))
    with tempfile.TemporaryDirectory() as name:
        wal = TurnLog(Path(name), "p1")
        wal.note(turn)
        (entry,) = replayed(Path(name))
        assert replayed(Path(name)) == []
        wal.close()
    points = [value for name, value in msgspec.structs.asdict(turn).items() if name.endswith("_perf_ns") and value]
    last_unix_ns = turn.started_unix_ns + max(points, default=0) - min(points, default=0)
    # The receiver writes control characters out, and withholds what cannot be.
    kept = with_plain_texts(without_contradictions(turn, of_timestamps(turn)))
    # What lies beyond the 63 bits of the store is refused on any way to it.
    assert decoded_traces(entry.payload).turns in ([[kept]] if last_unix_ns < 2**62 else [[kept], []])


def test_a_turn_log_that_is_not_taken_stays(tmp_path: Path) -> None:
    for owner in ("p1", "p2"):
        wal = TurnLog(tmp_path, owner)
        for turn in exchange(0):
            wal.note(turn)
    taken: list[int] = []

    def first_only(entry: SpoolRecord) -> bool:
        taken.append(entry.items)
        return len(taken) == 1

    result = replay(tmp_path, first_only)
    assert (result.turn_logs, result.left_turn_logs, result.is_complete) == (2, 1, False)
    assert [path.name for path in tmp_path.iterdir()] == ["p2-turns-000000.wal"]
    (rest,) = replayed(tmp_path)
    assert rest.items == 2
    assert list(tmp_path.iterdir()) == []


def test_many_turns_go_in_batches_and_the_taken_ones_once(tmp_path: Path) -> None:
    wal = TurnLog(tmp_path, "p1")
    for index in range(150):
        wal.note(client_turn(index))
    first: list[SpoolRecord] = []
    result = replay(tmp_path, lambda entry: len(first) < 1 and first.append(entry) is None)
    assert result == ReplayResult(turn_logs=1, left_turn_logs=1)
    payloads = [entry.payload for entry in (*first, *replayed(tmp_path))]
    found = [turn.sequence for payload in payloads for turn in decoded_traces(payload).turns]
    assert found == list(range(150))
    assert len(payloads) == 3


def test_requests_and_turns_of_one_owner_come_home_in_this_order(tmp_path: Path) -> None:
    wal, spool = TurnLog(tmp_path, "p1"), Spool(tmp_path, "p1")
    wal.note(client_turn(0))
    spool.append(record(0))
    spool.close()
    taken: list[SpoolRecord] = []
    result = replay(tmp_path, lambda entry: taken.append(entry) is None, lambda _: 1)
    assert result == ReplayResult(records=1, spans=2, turns=1, turn_logs=1)
    assert taken[0] == record(0)
    assert [turn.sequence for turn in decoded_traces(taken[1].payload).turns] == [0]


def test_a_log_of_another_version_stays_with_a_warning_and_the_others_come_home(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path, "p1")
    spool.append(record(0))
    spool.close()
    other, newer = tmp_path / "a.wal", tmp_path / "z.wal"
    other.write_bytes(b"written by another version")
    log = LogFile.create(newer)
    log.append(LogRecord("turn", 1, b'{"field_of_tomorrow": 1}'), durable=False)
    log.close()
    before = other.read_bytes(), newer.read_bytes()
    taken: list[SpoolRecord] = []
    with caplog.at_level(logging.WARNING):
        result = replay(tmp_path, lambda entry: taken.append(entry) is None)
    assert taken == [record(0)]
    assert (result.foreign, result.is_complete) == ((other, newer), True)
    assert (other.read_bytes(), newer.read_bytes()) == before
    assert "a.wal is no write-ahead log of this version" in caplog.text
    assert "z.wal holds a turn that this version of voiceprobe cannot read" in caplog.text
