"""The golden answers about a store of as many turns as asked for: those of `calls`, again and again as other turns.

Each is drawn from variants of one turn that are decoded as they are, with another wait for the answer in each, so that
every derived column is what the product makes of it. Only what identifies turns is replaced, in columns: ids, moments
on the wall clock, the run, the process and its numbers. The spans of the turns are not stored: no answer needs them.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.model import semconv
from telemetry.model.metrics import TIMESTAMPS
from telemetry.model.turns import Turn
from telemetry.store.connection import EXACT_TURNS
from telemetry.store.reader import StoreReader
from telemetry.store.schema import ArrowTable, turns_table
from tests.fixtures_sidecar import decode_metrics, decode_traces, turns_request
from tests.goldens import asking
from tests.goldens.calls import MINUTE, MORNING_UNIX_NS, MS, RUNS, SECOND, CallerRun, turns_of
from tests.goldens.comparing import NOT_COMPARED
from tests.goldens.exports import announced, health, traces_request
from tests.goldens.feeding import feed_tables

_RUN_NS: Final = 60 * MINUTE
_VARIANTS: Final = 20
_CHUNK_CALLS: Final = 20_000
_OTHER_RUNS: Final = 5
_EVERY_SERVICE_CALL: Final = 4
# Of the numbers that a process gives its turns, one in so many never arrives.
_LOST_EVERY: Final = 1_000
_CLOCK_SHIFT_NS: Final = 7 * SECOND
# What the endpoint does comes later together.
_OF_THE_ANSWER: Final = tuple(f"{name}_perf_ns" for name in TIMESTAMPS if name not in ("speech_start", "speech_end"))
Integers = np.ndarray[Any, np.dtype[np.int64]]
compute: Final[Any] = pc
# Of one run, the service does not know that its callers belong to it.
_WITHOUT_A_RUN: Final = "run-4"
SERVICE_RUN: Final = "service:assistant:2026-11-11"
_Tables = tuple[ArrowTable, ArrowTable, ArrowTable]


def file_of(turns: int) -> Path:
    """Where the answers about so many turns are."""
    return Path(__file__).with_name(f"answers_{turns}.json")


def runs_of(turns: int) -> list[CallerRun]:
    """The runs of a store of about so many turns of callers: half of them in the newest one."""
    calls = turns // 3
    shares = [calls // 2 // _OTHER_RUNS] * _OTHER_RUNS + [calls - calls // 2]
    return [
        replace(
            RUNS[0 if number == _OTHER_RUNS else number % len(RUNS)],
            run_id="large" if number == _OTHER_RUNS else f"run-{number}",
            calls=share,
            begins_unix_ns=MORNING_UNIX_NS + number * 2 * _RUN_NS,
            call_every_ns=_RUN_NS // share,
            workers=4,
        )
        for number, share in enumerate(shares)
    ]


def fill(directory: Path, turns: int, ends_unix_ns: int | None = None) -> None:
    """Store them, on their own days or so that the last run ends at another moment."""
    runs = runs_of(turns)
    later_ns = 0 if ends_unix_ns is None else ends_unix_ns - runs[-1].ends_unix_ns
    runs = [replace(run, begins_unix_ns=run.begins_unix_ns + later_ns) for run in runs]
    feed_tables(directory, (tables for run in runs for tables in _tables(run)), runs[-1].ends_unix_ns)


def answered(directory: Path, turns: int, exact_turns: int = EXACT_TURNS) -> dict[str, object]:
    """All answers that are not single turns; on pages of more than `exact_turns` percentiles are estimates."""
    run = runs_of(turns)[-1]
    asked = asking.Asked(
        run=run.run_id,
        other="run-1",
        service=SERVICE_RUN,
        cohorts=(run.run_id, "streaming", "control"),
        since_unix_ns=run.begins_unix_ns + 20 * MINUTE,
        until_unix_ns=run.begins_unix_ns + 40 * MINUTE,
        turns=(),
        single_turns=False,
    )
    now_unix_ns = run.ends_unix_ns + _RUN_NS
    with StoreReader(directory, wall_clock_ns=lambda: now_unix_ns, exact_turns=exact_turns) as reader:
        answers = asking.answers(asking.of_reader(reader), asked)
    return {key: _without_samples(value) for key, value in answers.items()}


def _without_samples(value: Any) -> Any:
    """An answer without what was found of why an objective is missed: of very many turns it is found in a sample."""
    if isinstance(value, dict):
        cause = {"cause": {"found": NOT_COMPARED}} if isinstance(value.get("cause"), dict) else {}
        return {key: _without_samples(member) for key, member in value.items()} | cause
    return [_without_samples(element) for element in value] if isinstance(value, list) else value


def _tables(run: CallerRun) -> Iterator[_Tables]:
    empty, no_turns = decode_metrics([]), turns_table([])
    spans = [*announced(run, "start"), *announced(run, "end")]
    yield no_turns, decode_traces([traces_request("voiceprobe", semconv.SCOPE, spans)]).spans, empty.points
    template = _Template(run)
    emitted = np.zeros(run.workers, np.int64)
    for first in range(0, run.calls, _CHUNK_CALLS):
        calls = np.arange(first, min(run.calls, first + _CHUNK_CALLS))
        yield template.turns(calls, emitted), empty.spans, empty.points
    numbers = [int(count + count // _LOST_EVERY) for count in emitted]
    yield no_turns, empty.spans, decode_metrics([health(run, numbers)]).points


class _Template:
    """Decoded variants of the calls of a run, and what of them is replaced."""

    def __init__(self, run: CallerRun) -> None:
        self.run = run
        rng = random.Random(f"variants {run.run_id}")
        source = next(candidate for candidate in RUNS if candidate.protocol == run.protocol)
        calls = [[_variant(rng, turn) for turn in call] for _ in range(_VARIANTS) for call in turns_of(source)]
        turns = [turn for call in calls for turn in call]
        self._counts = np.array([len(call) for call in calls], np.int64)
        self._firsts = np.cumsum(self._counts) - self._counts
        self._after = np.array([t.started_unix_ns - call[0].started_unix_ns for call in calls for t in call], np.int64)
        self._began = np.array([turn.started_unix_ns for turn in turns], np.int64)
        self._client = _decoded(turns)
        self._service = _decoded([_reported(rng, turn) for turn in turns])
        self._moving = _moving(turns[:50])
        self._reports = 0

    def turns(self, calls: Any, emitted: Any) -> ArrowTable:
        """The turns of calls by their numbers, as callers heard them and for some as the service reported them.
        `emitted` counts the numbers that each process gave."""
        chosen = calls % self._counts.size
        counts = self._counts[chosen]
        call = np.repeat(calls, counts)
        rows = (
            np.repeat(self._firsts[chosen], counts)
            + np.arange(call.size)
            - np.repeat(np.cumsum(counts) - counts, counts)
        )
        begin = self.run.begins_unix_ns + call * self.run.call_every_ns + self._after[rows]
        worker = call % self.run.workers
        sequence = np.zeros(call.size, np.int64)
        for number in range(self.run.workers):
            places = np.flatnonzero(worker == number)
            numbers = emitted[number] + np.arange(places.size)
            sequence[places] = numbers + numbers // _LOST_EVERY
            emitted[number] += places.size
        turns = _Turns(call, rows, begin, worker, sequence)
        reported = turns.only(np.flatnonzero(call % _EVERY_SERVICE_CALL == 0), self._reports)
        self._reports += reported.call.size
        return pa.concat_tables([self._side("client", turns), self._side("service", reported)])

    def _side(self, source: semconv.Source, turns: "_Turns") -> ArrowTable:
        """The rows of one side with everything replaced that identifies them."""
        table = (self._client if source == "client" else self._service).take(pa.array(turns.rows))
        run_id = self.run.run_id
        known_run = SERVICE_RUN if (run_id, source) == (_WITHOUT_A_RUN, "service") else run_id
        process = [f"{run_id}-{'worker' if source == 'client' else 'assistant'}-{worker}" for worker in turns.worker]
        number = [*zip(turns.call.tolist(), table.column("turn_index").to_pylist(), strict=True)]
        salt = int.from_bytes(run_id.encode()[-5:]) << 24
        side = 1 if source == "client" else 2
        known = table.column("response_id").is_valid().to_pylist()
        texts: dict[str, list[str | None]] = {
            "run_id": [known_run] * len(number),
            "call_id": [f"{run_id}-call-{call}" for call, _ in number],
            "trace_id": [f"{_mixed(call, salt):016x}{_mixed(call, salt + 1):016x}" for call, _ in number],
            "span_id": [f"{_mixed(8 * call + index, salt + side + 1):016x}" for call, index in number],
            "process_id": list(process),
            "response_id": [
                f"resp-{_mixed(8 * call + index, salt):016x}" if there else None
                for (call, index), there in zip(number, known, strict=True)
            ],
        }
        columns = dict(zip(table.column_names, table.columns, strict=True))
        columns |= {name: pa.chunked_array([pa.array(values, pa.string())]) for name, values in texts.items()}
        columns["sequence"] = pa.chunked_array([pa.array(turns.sequence)])
        moved = pa.array(turns.begin - self._began[turns.rows])
        columns |= {name: compute.add(columns[name], moved) for name in self._moving}
        return pa.Table.from_arrays([columns[name].combine_chunks() for name in table.column_names], table.column_names)


@dataclass(frozen=True, slots=True)
class _Turns:
    """The turns to make: for each its call, its row among the variants, when it begins, and who numbered it."""

    call: Integers
    rows: Integers
    begin: Integers
    worker: Integers
    sequence: Integers

    def only(self, places: Integers, numbered_from: int) -> "_Turns":
        """Some of them, numbered by the one process of the service."""
        nobody = np.zeros(places.size, np.int64)
        sequence = np.arange(places.size) + numbered_from
        return _Turns(self.call[places], self.rows[places], self.begin[places], nobody, sequence)


def _mixed(number: int, salt: int) -> int:
    """A number of 64 bits that looks like chance; different for each number."""
    return (number * 0x9E3779B97F4A7C15 + salt * 0xBF58476D1CE4E5B9) % 2**64


def _variant(rng: random.Random, turn: Turn) -> Turn:
    """The same turn with another wait for the answer."""
    later = rng.randrange(60 * MS)
    moments = {name: at + later for name in _OF_THE_ANSWER if (at := getattr(turn, name)) is not None}
    return msgspec.structs.replace(turn, **moments, span_id=f"{rng.getrandbits(64):016x}")


def _reported(rng: random.Random, turn: Turn) -> Turn:
    """The turn as the service saw it: its answer a little earlier, and without what only a caller knows."""
    earlier = rng.randrange(4 * MS, 30 * MS)
    moments = {name: at - earlier for name in _OF_THE_ANSWER if (at := getattr(turn, name)) is not None}
    own = {"source": "service", "outcome": "ok" if turn.outcome in ("invalid", "cut") else turn.outcome}
    nothing = {"outcome_observed": None, "invalid_reasons": (), "cut_by": None, "connect_ns": None}
    return msgspec.structs.replace(turn, **moments, **own, **nothing)


def _decoded(turns: list[Turn]) -> ArrowTable:
    decoded = [
        turn
        for first in range(0, len(turns), 1_000)
        for turn in decode_traces([turns_request(turns[first : first + 1_000]).SerializeToString()]).turns
    ]
    table = turns_table(decoded)
    assert table.column("span_id").to_pylist() == [turn.span_id for turn in turns]
    return table


def _moving(turns: list[Turn]) -> tuple[str, ...]:
    """The columns that move with the wall clock."""
    before = _decoded(turns)
    after = _decoded([msgspec.structs.replace(t, started_unix_ns=t.started_unix_ns + _CLOCK_SHIFT_NS) for t in turns])
    changed = [name for name in before.column_names if before.column(name) != after.column(name)]
    for name in changed:
        assert compute.add(before.column(name), _CLOCK_SHIFT_NS) == after.column(name), name
    return tuple(changed)
