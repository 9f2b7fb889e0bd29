"""Fills a store with as many turns as asked for, in columns, without sending them: 10 million in minutes.

What a store holds after N turns: N turns that a client heard, three to a call; the service's side of every fourth
call; the span of every turn and of its stages, and of every call; and the generator's gauges. Half of the turns are
one large run, the newest; the others are up to 20 runs before it. Rows are drawn from a few thousand templates, with
ids and moments of their own and the endpoint's moments shifted by up to 40 ms, so that latencies have as many values
as a real store's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.model.errors import StoreError
from telemetry.model.metrics import TIMESTAMPS
from telemetry.store.schema import DERIVED_METRICS, ENDED_COLUMN, SCHEMAS, SIDES, ArrowTable, spans_table, without_rows
from telemetry.store.writer import StoreWriter
from tests.benchmarks.bench.store.templates import (
    CALLS,
    LARGE_RUN,
    MS,
    SECOND,
    TURNS_OF_A_CALL,
    Integers,
    Templates,
    TemplateSide,
    gauge_points,
    make_templates,
    run_span,
)

# pyarrow ships no types of its own.
compute: Final[Any] = pc

LARGE_RUN_NS: Final = 3_600 * SECOND
SMALL_RUN_NS: Final = 600 * SECOND
_PAUSE_NS: Final = 300 * SECOND
_SMALL_RUNS_MAX: Final = 20
_SMALL_RUN_TURNS_MIN: Final = 300
_WORKERS: Final = 8
_EVERY_SERVICE_CALL: Final = 4
_TURN_EVERY_NS: Final = 9 * SECOND
_GAUGES_EVERY_NS: Final = 5 * SECOND
_JITTER_NS: Final = 40 * MS
_CHUNK_CALLS: Final = 25_000
# What the endpoint does, and what follows from it; all of it shifts together.
_ENDPOINT_MOMENTS: Final = frozenset(TIMESTAMPS) - {"speech_start", "speech_end", "hangup"}
_FROM_SPEECH: Final = tuple(
    name
    for metric in DERIVED_METRICS
    if metric.counts_from is not None
    for name in (metric.column, *(metric.bound_column(side) for side in SIDES))
)


@dataclass(frozen=True, slots=True)
class GeneratedRun:
    """A run to generate: its name, its calls, and when it begins and ends."""

    run_id: str
    calls: int
    begin_unix_ns: int
    lasts_ns: int


@dataclass(frozen=True, slots=True)
class Filled:
    """What a store was filled with: runs in the order of their time, the last one the large one, and a turn of it."""

    runs: tuple[GeneratedRun, ...]
    turns: int
    spans: int
    trace_id: str


def planned_runs(turns: int, end_unix_ns: int) -> tuple[GeneratedRun, ...]:
    """The runs of a store of this many turns (a multiple of three), the last one ending at `end_unix_ns`."""
    calls = max(1, turns // TURNS_OF_A_CALL)
    large = (calls + 1) // 2
    rest = calls - large
    small = min(_SMALL_RUNS_MAX, rest, max(1, rest * TURNS_OF_A_CALL // _SMALL_RUN_TURNS_MIN)) if rest else 0
    begin = end_unix_ns - LARGE_RUN_NS
    runs = [GeneratedRun(LARGE_RUN, large, begin, LARGE_RUN_NS)]
    for number in range(small, 0, -1):
        begin -= SMALL_RUN_NS + _PAUSE_NS
        share = rest // small + (number <= rest % small)
        runs.insert(0, GeneratedRun(f"run-{number:02d}", share, begin, SMALL_RUN_NS))
    return tuple(runs)


def fill(
    directory: Path,
    turns: int,
    *,
    end_unix_ns: int,
    seed: int = 1,
    on_turns: Callable[[int], None] = lambda _turns: None,
) -> Filled:
    """Fill a store (created when missing); `on_turns` is called with each number of client turns that was added.

    Raises StoreError when the store cannot be written.
    """
    templates, rng = make_templates(seed), np.random.default_rng(seed)
    runs = planned_runs(turns, end_unix_ns)
    spans, trace_id, client_turns = 0, "", 0
    no_turns, no_points = without_rows(SCHEMAS["turns"]), without_rows(SCHEMAS["points"])
    try:
        # There is no text to be removed.
        with StoreWriter(directory, keep_text=True) as writer:
            for run in runs:
                declared = _run_spans(run, rng)
                writer.append_tables(no_turns, declared, _run_points(run))
                spans += declared.num_rows
                for chunk in _chunks(templates, run, rng):
                    writer.append_tables(chunk.turns, chunk.spans, no_points)
                    spans, trace_id = spans + chunk.spans.num_rows, chunk.turns.column("trace_id")[0].as_py()
                    client_turns += chunk.client_turns
                    on_turns(chunk.client_turns)
    except OSError as error:
        raise StoreError(f"{directory}: cannot be filled ({error.strerror or error}); name another folder") from error
    return Filled(runs, client_turns, spans, trace_id)


@dataclass(frozen=True, slots=True)
class _Part:
    turns: ArrowTable
    spans: ArrowTable
    client_turns: int


def _chunks(templates: Templates, run: GeneratedRun, rng: np.random.Generator) -> Iterator[_Part]:
    for first in range(0, run.calls, _CHUNK_CALLS):
        yield _chunk(templates, run, range(first, min(run.calls, first + _CHUNK_CALLS)), rng)


def _chunk(templates: Templates, run: GeneratedRun, calls: range, rng: np.random.Generator) -> _Part:
    count = len(calls)
    template = rng.integers(0, CALLS, count)
    rows = (template[:, None] * TURNS_OF_A_CALL + np.arange(TURNS_OF_A_CALL)).ravel()
    of_call = np.repeat(np.arange(count), TURNS_OF_A_CALL)
    call_begin = run.begin_unix_ns + (np.arange(calls.start, calls.stop) * run.lasts_ns) // run.calls
    turn_index = np.tile(np.arange(TURNS_OF_A_CALL), count)
    begin = call_begin[of_call] + turn_index * _TURN_EVERY_NS + rng.integers(0, SECOND, rows.size)
    jitter = rng.integers(0, _JITTER_NS, rows.size)
    traces, call_ids, call_spans = hex_texts(rng, count, 32), hex_texts(rng, count, 32), hex_texts(rng, count, 16)
    number = np.arange(calls.start * TURNS_OF_A_CALL, calls.stop * TURNS_OF_A_CALL)
    responses = hex_texts(rng, rows.size, 24)
    turns: list[ArrowTable] = []
    spans = [_call_spans(templates, traces, call_spans, call_begin)]
    reported = np.flatnonzero(number // TURNS_OF_A_CALL % _EVERY_SERVICE_CALL == 0)
    reports = number[reported] // (TURNS_OF_A_CALL * _EVERY_SERVICE_CALL) * TURNS_OF_A_CALL + turn_index[reported]
    sides = (
        (templates.client, np.arange(rows.size), number % _WORKERS, number // _WORKERS, "worker"),
        (templates.service, reported, np.zeros(reported.size, np.int64), reports, "assistant"),
    )
    for side, chosen, worker, sequence, role in sides:
        ids = hex_texts(rng, chosen.size, 16)
        replaced = {
            "run_id": pa.array([run.run_id]).take(pa.array(np.zeros(chosen.size, np.int64))),
            "call_id": call_ids.take(pa.array(of_call[chosen])),
            "trace_id": traces.take(pa.array(of_call[chosen])),
            "span_id": ids,
            "process_id": pa.array([f"{run.run_id}-{role}-{i}" for i in range(_WORKERS)]).take(pa.array(worker)),
            "sequence": pa.array(sequence),
            "response_id": responses.take(pa.array(chosen)),
        }
        elapsed = begin[chosen] - run.begin_unix_ns
        turns.append(_turns(side.turns.take(pa.array(rows[chosen])), replaced, begin[chosen], elapsed, jitter[chosen]))
        found = _turn_spans(side, rows[chosen], ids, begin[chosen], rng)
        parents = call_spans.take(pa.array(of_call[chosen]))
        spans.append(_within(found, replaced["trace_id"], parents))
    return _Part(pa.concat_tables(turns), pa.concat_tables(spans), rows.size)


def hex_texts(rng: np.random.Generator, count: int, digits: int) -> Any:
    """An Arrow array of random hexadecimal texts, each with an even number of digits."""
    offsets = np.arange(count + 1, dtype=np.int32) * digits
    text = rng.bytes(count * digits // 2).hex().encode()
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text))


def _turns(table: ArrowTable, replaced: dict[str, Any], begin: Integers, elapsed: Integers, jitter: Integers) -> Any:
    columns = dict(zip(table.column_names, table.columns, strict=True)) | replaced
    columns["started_unix_ns"] = pa.array(begin)
    columns["started_perf_ns"] = pa.array(elapsed)
    for name in TIMESTAMPS:
        moved = elapsed + jitter if name in _ENDPOINT_MOMENTS else elapsed
        columns[f"{name}_perf_ns"] = compute.add(columns[f"{name}_perf_ns"], pa.array(moved))
    for column in _FROM_SPEECH:
        columns[column] = compute.add(columns[column], pa.array(jitter))
    columns[ENDED_COLUMN] = compute.add(columns[ENDED_COLUMN], pa.array(begin + jitter))
    return pa.Table.from_arrays([_whole(columns[name]) for name in table.column_names], schema=table.schema)


@dataclass(frozen=True, slots=True)
class _TurnSpans:
    """Spans without trace id and parent; `of_turn` is the turn of each, `is_turn` whether it is the turn's own."""

    table: ArrowTable
    of_turn: Integers
    is_turn: np.ndarray[Any, np.dtype[np.bool_]]
    span_ids: Any
    turn_ids: Any
    begin: Integers


def _turn_spans(side: TemplateSide, rows: Integers, ids: Any, begin: Integers, rng: np.random.Generator) -> _TurnSpans:
    counts = side.span_count[rows]
    of_turn = np.repeat(np.arange(rows.size), counts)
    place = np.arange(of_turn.size) - np.repeat(np.cumsum(counts) - counts, counts)
    is_turn = place == 0
    fresh = hex_texts(rng, of_turn.size, 16)
    turn_ids = ids.take(pa.array(of_turn))
    return _TurnSpans(
        table=side.spans.take(pa.array(side.first_span[rows][of_turn] + place)),
        of_turn=of_turn,
        is_turn=is_turn,
        span_ids=compute.if_else(pa.array(is_turn), turn_ids, fresh),
        turn_ids=turn_ids,
        begin=begin[of_turn],
    )


def _within(found: _TurnSpans, traces: Any, parents: Any) -> ArrowTable:
    """The spans, each in its trace and under its parent."""
    columns = dict(zip(found.table.column_names, found.table.columns, strict=True))
    columns["trace_id"] = traces.take(pa.array(found.of_turn))
    columns["span_id"] = found.span_ids
    of_call = parents.take(pa.array(found.of_turn))
    columns["parent_span_id"] = compute.if_else(pa.array(found.is_turn), of_call, found.turn_ids)
    return _at(columns, found.begin)


def _call_spans(templates: Templates, traces: Any, ids: Any, begin: Integers) -> ArrowTable:
    table = templates.call_span.take(pa.array(np.zeros(begin.size, np.int64)))
    columns = dict(zip(table.column_names, table.columns, strict=True)) | {"trace_id": traces, "span_id": ids}
    return _at(columns, begin)


def _at(columns: dict[str, Any], begin: Integers) -> ArrowTable:
    columns["timestamp_unix_ns"] = compute.add(columns["timestamp_unix_ns"], pa.array(begin))
    columns["events"] = _events_at(_whole(columns["events"]), begin)
    schema = SCHEMAS["spans"]
    return pa.Table.from_arrays([_whole(columns[name]) for name in schema.names], schema=schema)


def _events_at(events: Any, begin: Integers) -> Any:
    """Lists of events whose moments are counted from the beginning of a turn, on the wall clock."""
    flat, of_event = events.flatten(), compute.list_parent_indices(events).to_numpy()
    fields = [flat.field(number) for number in range(flat.type.num_fields)]
    fields[0] = compute.add(fields[0], pa.array(begin[of_event]))
    lengths = compute.list_value_length(events).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(fields, fields=list(flat.type)), events.type)


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _run_spans(run: GeneratedRun, rng: np.random.Generator) -> ArrowTable:
    """What each process declares: one without an end counts as lost, and of such a run nothing would be judged."""
    traces, ids = hex_texts(rng, _WORKERS, 32).to_pylist(), hex_texts(rng, 2 * _WORKERS, 16).to_pylist()
    moments = {"start": run.begin_unix_ns, "end": run.begin_unix_ns + run.lasts_ns}
    return spans_table(
        [
            run_span(run.run_id, at_unix_ns, phase, (trace, ids.pop()), worker)
            for worker, trace in enumerate(traces)
            for phase, at_unix_ns in moments.items()
        ]
    )


def _run_points(run: GeneratedRun) -> ArrowTable:
    moments = list(range(run.begin_unix_ns, run.begin_unix_ns + run.lasts_ns, _GAUGES_EVERY_NS))
    return pa.concat_tables(
        [gauge_points(run.run_id, f"{run.run_id}-worker-{worker}", moments) for worker in range(_WORKERS)]
    )
