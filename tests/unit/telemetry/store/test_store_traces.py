"""Lookup of a trace finds what a search through everything finds, in whichever append it came."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, client_turn, exchange, stage_spans
from tests.nightly import examples

TRACES = 6


def trace(number: int) -> str:
    """The id of the trace with a number."""
    return f"{number + 1:x}" * 32


appends = st.lists(st.lists(st.integers(0, TRACES - 1), min_size=1, max_size=12), min_size=1, max_size=4)


def batch(traces: Sequence[int], first: int) -> Batch:
    """A client turn and its stages for each of the traces; the indexes count from `first` over the whole store."""
    turns = [
        msgspec.structs.replace(
            exchange(first + place)[0],
            trace_id=trace(number),
            span_id=f"{(first + place) * 16:016x}",  # its stages have the numbers that follow
            turn_index=first + place,
            started_unix_ns=1_700_000_000 * SECOND + (first + place) * 7 % 40 * SECOND,
        )
        for place, number in enumerate(traces)
    ]
    return Batch(turns, [span for turn in turns for span in stage_spans(turn)])


def check_lookups(reader: StoreReader, turns: Sequence[Turn], spans: Sequence[SpanRow]) -> None:
    """Every trace and one that is absent, against all that was written."""
    for number in range(TRACES + 1):
        expected = [turn for turn in turns if turn.trace_id == trace(number)]
        for turn in expected:
            assert reader.turn(trace(number), turn.turn_index) == (turn, None)
        assert reader.turn(trace(number), len(turns)) == (None, None)
        rows = reader.spans(trace(number))
        assert [span.start_unix_ns for span in rows] == sorted(span.start_unix_ns for span in rows)
        whole = {span.span_id: span for span in spans if span.trace_id == trace(number)}
        assert len(rows) == len(whole)
        assert {span.span_id: span for span in rows} == whole


@pytest.mark.slow
@settings(max_examples=examples(5, 12), deadline=None)
@given(appends)
def test_lookups_find_what_a_search_through_everything_finds(made: list[Sequence[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, turns, spans = Path(folder), list[Turn](), list[SpanRow]()
        with StoreWriter(store) as writer:
            for traces in made:
                content = batch(traces, len(turns))
                writer.append(content)
                turns += content.turns
                spans += content.spans
        with StoreReader(store) as reader:
            check_lookups(reader, turns, spans)


@pytest.mark.slow
def test_both_sides_of_a_turn_are_found_in_different_appends(tmp_path: Path) -> None:
    client, service = exchange(3)
    others = [turn for index in range(4, 30) for turn in exchange(index)]
    with StoreWriter(tmp_path) as writer:
        for turns in ([client, *others[::2]], [service], others[1::2]):
            writer.append(Batch(turns))
    with StoreReader(tmp_path) as reader:
        assert reader.turn(client.trace_id, client.turn_index) == (client, service)
        for first in range(0, len(others), 2):
            heard, reported = others[first : first + 2]
            assert reader.turn(heard.trace_id, heard.turn_index) == (heard, reported)


def test_turns_appended_after_last_lookup_are_returned(tmp_path: Path) -> None:
    turns = [client_turn(index, trace_id=trace(index)) for index in range(4)]
    with StoreWriter(tmp_path) as writer, StoreReader(tmp_path) as reader:
        for turn in turns:
            assert reader.turn(turn.trace_id, 0) == (None, None)
            writer.append(Batch([turn]))
            assert reader.turn(turn.trace_id, 0) == (turn, None)
        late = msgspec.structs.replace(turns[0], source="service", span_id="f" * 16)
        writer.append(Batch([late]))
        assert reader.turn(turns[0].trace_id, 0) == (turns[0], late)
