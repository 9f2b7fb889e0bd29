"""What is found of a trace is what a search through everything finds, whichever segments have filters."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.store import manifest as manifests
from telemetry.store import row_groups
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch, turns_table
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, client_turn, exchange, stage_spans

TRACES = 6
NEVER = 10**9


def trace(number: int) -> str:
    """The id of the trace with a number."""
    return f"{number + 1:x}" * 32


@dataclass(frozen=True)
class Append:
    """What one append brings: the traces of its turns in order, and whether its segments have filters."""

    traces: Sequence[int]
    filtered: bool


appends = st.lists(
    st.builds(Append, st.lists(st.integers(0, TRACES - 1), min_size=1, max_size=12), st.booleans()),
    min_size=1,
    max_size=4,
)


def batch(append: Append, first: int) -> Batch:
    """A client turn and its stages for each of the traces; the indexes count from `first` over the whole store."""
    turns = [
        msgspec.structs.replace(
            exchange(first + place)[0],
            trace_id=trace(number),
            span_id=f"{(first + place) * 16:016x}",  # its stages have the numbers that follow
            turn_index=first + place,
            started_unix_ns=1_700_000_000 * SECOND + (first + place) * 7 % 40 * SECOND,
        )
        for place, number in enumerate(append.traces)
    ]
    return Batch(turns, [span for turn in turns for span in stage_spans(turn)])


def has_filters(store: Path, segment: manifests.Segment) -> bool:
    """Whether the trace ids of a segment have filters, by its metadata."""
    metadata: Any = pq.read_metadata(manifests.segment_path(store, segment))
    group = metadata.row_group(0)
    return any(group.column(place).bloom_filter_length for place in range(group.num_columns))


def check_lookups(reader: StoreReader, turns: Sequence[Turn], spans: Sequence[SpanRow]) -> None:
    """Every trace and one that is absent, against all that was written."""
    for number in range(TRACES + 1):
        expected = [turn for turn in turns if turn.trace_id == trace(number)]
        for turn in expected:
            assert reader.turn(trace(number), turn.turn_index) == (turn, None)
        assert reader.turn(trace(number), len(turns)) == (None, None)
        found = reader.spans(trace(number))
        assert [span.start_unix_ns for span in found] == sorted(span.start_unix_ns for span in found)
        whole = {span.span_id: span for span in spans if span.trace_id == trace(number)}
        assert len(found) == len(whole)
        assert {span.span_id: span for span in found} == whole


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(appends, st.booleans(), st.booleans())
def test_lookups_find_what_a_search_through_everything_finds(
    made: list[Append], merge: bool, merged_filtered: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "GROUP_ROWS_MAX", 4)
        store, turns, spans = Path(folder), list[Turn](), list[SpanRow]()
        for append in made:
            with StoreWriter(store, filter_rows_min=1 if append.filtered else NEVER) as writer:
                content = batch(append, len(turns))
                writer.append(content)
                turns += content.turns
                spans += content.spans
                assert has_filters(store, writer.manifest.of("spans")[-1]) == append.filtered
        if merge:
            with StoreWriter(store, filter_rows_min=1 if merged_filtered else NEVER) as writer:
                compactor = Compactor(writer, limits=MergeLimits(fan_in=2))
                while compactor.run_once():
                    pass
        with StoreReader(store) as reader:
            check_lookups(reader, turns, spans)


def test_both_sides_of_a_turn_are_found_in_different_segments(tmp_path: Path) -> None:
    client, service = exchange(3)
    others = [each for index in range(4, 30) for each in exchange(index)]
    for turns, filter_rows_min in (([client, *others[::2]], 1), ([service], NEVER), (others[1::2], 1)):
        with StoreWriter(tmp_path, filter_rows_min=filter_rows_min) as writer:
            writer.append(Batch(turns))
    with StoreReader(tmp_path) as reader:
        assert reader.turn(client.trace_id, client.turn_index) == (client, service)
        for first in range(0, len(others), 2):
            heard, reported = others[first : first + 2]
            assert reader.turn(heard.trace_id, heard.turn_index) == (heard, reported)


def test_what_was_appended_since_the_last_lookup_is_found(tmp_path: Path) -> None:
    turns = [client_turn(index, trace_id=trace(index)) for index in range(4)]
    with StoreWriter(tmp_path, filter_rows_min=1) as writer, StoreReader(tmp_path) as reader:
        for turn in turns:
            assert reader.turn(turn.trace_id, 0) == (None, None)
            writer.append(Batch([turn]))
            assert reader.turn(turn.trace_id, 0) == (turn, None)
        late = msgspec.structs.replace(turns[0], source="service", span_id="f" * 16)
        writer.append(Batch([late]))
        assert reader.turn(turns[0].trace_id, 0) == (turns[0], late)


def test_a_segment_of_an_older_version_is_searched_beside_the_others(tmp_path: Path) -> None:
    turns = [client_turn(index, trace_id=trace(index)) for index in range(4)]
    with StoreWriter(tmp_path, filter_rows_min=1) as writer:
        writer.append(Batch(turns[:2]))
        writer.append(Batch(turns[2:]))
        older = turns_table(turns[2:]).drop_columns(["pacer", "wer"])
        writer.swap([writer.manifest.of("turns")[1]], writer.write_segment("turns", [older], level=0))
    with StoreReader(tmp_path) as reader:
        for turn in turns:
            assert reader.turn(turn.trace_id, 0) == (turn, None)
        assert reader.turn(trace(4), 0) == (None, None)
        assert reader.faults == ()


def filter_place(path: Path) -> tuple[int, int]:
    """Where the filter of the trace ids of the first row group lies in the file: its offset and its length."""
    metadata: Any = pq.read_metadata(path)
    group = metadata.row_group(0)
    columns = (group.column(place) for place in range(group.num_columns))
    return next((c.bloom_filter_offset, c.bloom_filter_length) for c in columns if c.path_in_schema == "trace_id")


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_segment_whose_filter_is_damaged_is_left_out_and_named(tmp_path: Path, seen_before: bool) -> None:
    turns = [client_turn(index, trace_id=trace(index)) for index in range(4)]
    with StoreWriter(tmp_path, filter_rows_min=1) as writer:
        writer.append(Batch(turns[::2]))
        writer.append(Batch(turns[1::2]))
        victim = manifests.segment_path(tmp_path, writer.manifest.of("turns")[0])
    with StoreReader(tmp_path) as reader:
        if seen_before:
            assert reader.turn(trace(0), 0) == (turns[0], None)
        offset, _ = filter_place(victim)
        with victim.open("r+b") as file:
            file.seek(offset)
            file.write(b"\xff" * 16)  # its header: the kind of filter and its size
        assert reader.turn(trace(0), 0) == (None, None)
        assert [str(victim) in fault for fault in reader.faults] == [True]
        assert reader.turn(trace(1), 0) == (turns[1], None)
