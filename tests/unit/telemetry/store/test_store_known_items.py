"""What is sent again is stored once, however late: checked against what was ever sent, by ways of sending again."""

import errno
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.errors import StoreError
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.store import identity, stored_keys
from telemetry.store import manifest as manifests
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch, PointRow, points_table, turns_table
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, START_UNIX_NS, client_turn

FAN_IN = 4
LATEST = 2**62 - 1


def _sequences(directory: Path) -> list[int]:
    with StoreReader(directory) as reader:
        assert reader.faults == ()
        return sorted(turn.sequence for turn in reader.turns(limit=100_000))


def _compact(writer: StoreWriter) -> None:
    compactor = Compactor(writer, limits=MergeLimits(fan_in=FAN_IN), grace_s=0.0)
    while compactor.run_once():
        pass
    compactor.stop()


def _append(writer: StoreWriter, turns: Sequence[Turn]) -> int:
    return writer.append(Batch(turns=turns)).duplicates


@pytest.mark.slow
@pytest.mark.parametrize("between", ["nothing", "restart", "compaction", "compaction and restart"])
@pytest.mark.parametrize("recent_rows_max", [0, 3, 10, 1_000])
def test_a_batch_is_taken_once_after_more_than_the_window_holds(
    tmp_path: Path, between: str, recent_rows_max: int
) -> None:
    turns = [client_turn(index) for index in range(30)]
    writer = StoreWriter(tmp_path, recent_rows_max=recent_rows_max)
    for first in range(0, 30, 2):
        assert _append(writer, turns[first : first + 2]) == 0
    if "compaction" in between:
        _compact(writer)
    if "restart" in between:
        writer.close()
        writer = StoreWriter(tmp_path, recent_rows_max=recent_rows_max)
    with writer:
        assert [_append(writer, turns[first : first + 2]) for first in range(0, 30, 2)] == [2] * 15
        assert _append(writer, [*turns[::3], client_turn(30), *turns[::-7]]) == 10 + 5
    assert _sequences(tmp_path) == list(range(31))


def test_items_that_begin_at_once_are_distinct_and_found_again(tmp_path: Path) -> None:
    turns = [client_turn(index, started_unix_ns=START_UNIX_NS) for index in range(20)]
    with StoreWriter(tmp_path, recent_rows_max=4) as writer:
        for turn in turns:
            assert _append(writer, [turn]) == 0
            assert _append(writer, [turn, turn]) == 2
        _compact(writer)
        assert _append(writer, turns) == 20
        assert _append(writer, [client_turn(99, started_unix_ns=START_UNIX_NS)]) == 0


@pytest.mark.parametrize("moment", [0, 1, START_UNIX_NS - 10**18, START_UNIX_NS + 10**18, LATEST])
def test_wild_moments_are_known_too(tmp_path: Path, moment: int) -> None:
    wild = client_turn(1_000, started_unix_ns=moment)
    with StoreWriter(tmp_path, recent_rows_max=2) as writer:
        assert _append(writer, [wild]) == 0
        for index in range(10):
            assert _append(writer, [client_turn(index)]) == 0
        assert _append(writer, [wild]) == 1
        assert _append(writer, [client_turn(index) for index in range(11)]) == 10


def test_around_the_edge_of_what_is_in_memory(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, recent_rows_max=4) as writer:
        for index in range(8):
            _append(writer, [client_turn(index)])
        # Rows 4 to 7 are in memory; a batch across the edge, whole and one by one.
        assert _append(writer, [client_turn(3), client_turn(4)]) == 2
        assert [_append(writer, [client_turn(index)]) for index in (3, 4)] == [1, 1]
        _compact(writer)  # a merged segment now lies across the edge
        _append(writer, [client_turn(8)])
        assert _append(writer, [client_turn(index) for index in range(9)]) == 9
    assert _sequences(tmp_path) == list(range(9))


def test_a_turn_without_ids_is_known_by_its_place_in_the_call(tmp_path: Path) -> None:
    first = client_turn(1, trace_id="", span_id="")
    others = [
        msgspec.structs.replace(first, **change)
        for change in ({"turn_index": 1}, {"source": "service"}, {"call_id": "c"}, {"run_id": "r"})
    ]
    with StoreWriter(tmp_path, recent_rows_max=0) as writer:
        assert _append(writer, [first]) == 0
        assert _append(writer, [first, *others]) == 1
        assert _append(writer, [client_turn(2), first, *others]) == 5


def test_a_point_is_known_by_what_whose_and_when(tmp_path: Path) -> None:
    point = PointRow("lag", START_UNIX_NS, 1.0, {"run_id": "r", "process_id": "p"}, "load")
    again = PointRow("lag", START_UNIX_NS, 2.0, {"process_id": "p", "run_id": "r"}, "load")
    others = [
        PointRow("late", START_UNIX_NS, 1.0, point.attributes, "load"),
        PointRow("lag", START_UNIX_NS + 1, 1.0, point.attributes, "load"),
        PointRow("lag", START_UNIX_NS, 1.0, point.attributes, "other"),
        PointRow("lag", START_UNIX_NS, 1.0, {"run_id": "r", "process_id": "q"}, "load"),
    ]
    for recent_rows_max in (0, 100):
        with StoreWriter(tmp_path / str(recent_rows_max), recent_rows_max=recent_rows_max) as writer:
            assert writer.append(Batch(points=[point])).duplicates == 0
            assert writer.append(Batch(points=[again, *others])).duplicates == 1


def test_spans_and_turns_of_one_id_do_not_hide_each_other(tmp_path: Path) -> None:
    turn = client_turn(1)
    span = SpanRow(
        trace_id=turn.trace_id,
        span_id=turn.span_id,
        parent_span_id=None,
        name="voice.turn",
        service="load",
        start_unix_ns=turn.started_unix_ns,
        end_unix_ns=turn.started_unix_ns + SECOND,
        attributes={},
    )
    with StoreWriter(tmp_path) as writer:
        assert writer.append(Batch(turns=[turn])).duplicates == 0
        assert writer.append(Batch(spans=[span])).duplicates == 0
        assert writer.append(Batch(turns=[turn], spans=[span])).duplicates == 2


def test_too_many_open_files_refuse_the_batch_instead_of_storing_it_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreWriter(tmp_path, recent_rows_max=0) as writer:
        _append(writer, [client_turn(1)])
        opened = Path.open

        def too_many(path: Path, *arguments: object, **options: object) -> object:
            if path.suffix == ".parquet":
                raise OSError(errno.EMFILE, "Too many open files")
            return opened(path, *arguments, **options)

        monkeypatch.setattr(Path, "open", too_many)
        with pytest.raises(StoreError, match="Too many open files"):
            _append(writer, [client_turn(1)])
        monkeypatch.undo()
        assert _append(writer, [client_turn(1), client_turn(2)]) == 1
    assert _sequences(tmp_path) == [1, 2]


@pytest.mark.parametrize("damage", ["empty", "cut", "gone"])
def test_a_damaged_segment_s_rows_are_taken_again(tmp_path: Path, damage: str) -> None:
    with StoreWriter(tmp_path, recent_rows_max=0) as writer:
        _append(writer, [client_turn(1)])
        _append(writer, [client_turn(2)])
        (victim,) = (tmp_path / manifests.SEGMENTS_FOLDER).glob("turns-000000000*")
        content = victim.read_bytes()
        victim.unlink()
        if damage != "gone":
            victim.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
        assert _append(writer, [client_turn(1), client_turn(2)]) == 1


@pytest.mark.slow
def test_memory_is_bounded_whatever_is_sent(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, recent_rows_max=50) as writer:
        known = writer._known
        known._stored = stored_keys.StoredKeys(tmp_path, fingerprint_bytes_max=100 * 4)
        turns = [
            client_turn(index, started_unix_ns=(index * 7919 % 1000) * SECOND if index % 2 else LATEST - index)
            for index in range(600)
        ]
        for first in range(0, 600, 30):
            assert _append(writer, turns[first : first + 30]) == 0
            assert known.recent_rows <= 50
            assert known._stored.fingerprint_bytes <= 100 * 4
        _append(writer, [client_turn(index) for index in range(1_000, 1_200)])  # one commit above the bound
        assert known.recent_rows <= 50
        _compact(writer)
        assert _append(writer, turns) == 600
        assert known._stored.fingerprint_bytes <= 30 * FAN_IN * FAN_IN * 4  # a single row group may exceed the bound


def test_long_texts_of_a_sender_stay_out_of_memory(tmp_path: Path) -> None:
    turns = [client_turn(index, trace_id="", span_id="", call_id=f"{index}" * 5_000) for index in range(3)]
    points = [PointRow("n" * 5_000, START_UNIX_NS, 1.0, {"note": f"{index}" * 5_000}) for index in range(3)]
    for table, content in (("turns", turns_table(turns)), ("points", points_table(points))):
        keys = identity.keys(table, content)
        assert max(map(len, keys)) <= 64
        assert len(set(keys)) == 3
    with StoreWriter(tmp_path, keep_text=True, recent_rows_max=0) as writer:
        assert writer.append(Batch(turns=turns[:2], points=points[:2])).duplicates == 0
        assert writer.append(Batch(turns=turns, points=points)).duplicates == 4


def test_rows_that_begin_now_cost_no_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also right after a start, in a store of any size: nothing is rebuilt."""
    with StoreWriter(tmp_path) as writer:
        for index in range(20):
            _append(writer, [client_turn(index)])
    reads: list[object] = []
    for name in ("read_table", "read_metadata", "ParquetFile"):
        monkeypatch.setattr(pq, name, lambda *arguments, **_options: reads.append(arguments))
    with StoreWriter(tmp_path) as writer:
        for index in range(20, 40):
            assert _append(writer, [client_turn(index)]) == 0
    assert reads == []


_STARTS = [0, START_UNIX_NS, START_UNIX_NS + SECOND, START_UNIX_NS + 2 * SECOND, LATEST]
_ITEMS = st.integers(0, 40)
_STEPS = st.one_of(st.lists(_ITEMS, max_size=8), st.sampled_from(["compact", "restart"]))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(_STEPS, max_size=25), st.integers(0, 12), st.lists(st.sampled_from(_STARTS), min_size=41, max_size=41))
def test_like_a_set_of_everything_ever_stored(
    steps: list[list[int] | str], recent_rows_max: int, starts: list[int]
) -> None:
    turns = [client_turn(index, started_unix_ns=start) for index, start in enumerate(starts)]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        writer = StoreWriter(directory, recent_rows_max=recent_rows_max)
        stored: set[int] = set()
        for step in steps:
            if step == "compact":
                _compact(writer)
            elif step == "restart":
                writer.close()
                writer = StoreWriter(directory, recent_rows_max=recent_rows_max)
            else:
                items = [int(item) for item in step]
                assert _append(writer, [turns[item] for item in items]) == len(items) - len(set(items) - stored)
                stored.update(items)
        writer.close()
        assert _sequences(directory) == sorted(stored)
