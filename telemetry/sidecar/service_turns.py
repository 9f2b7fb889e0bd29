"""Makes turns from the committed spans of services, and stores them through the one writer, each once.

A turn is stored with the first of its spans, and replaced when later spans change it, as long as its trace is in the
store and not older than `UPDATED_WITHIN_NS`. Only the spans and the turns are written: the traces from before the last
commit are read again at the start, and older ones when more of their spans arrive.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import duckdb
import msgspec
import pyarrow as pa

from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.model.foreign_text import one_line
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.frameworks import is_foreign
from telemetry.sidecar.adapters.turn_assembly import REMEMBERED_NS, UPDATED_WITHIN_NS, TurnAssembly, TurnChange
from telemetry.sidecar.counts.state import IngestState
from telemetry.sidecar.faults import FaultBoard
from telemetry.store.schema import SCHEMAS, ArrowTable, span_from_row, turn_from_row
from telemetry.store.writer import StoreWriter

# Rows become objects in parts of this many, and traces are read again so many at once.
_ROWS_AT_ONCE: Final = 1_000
_TRACES_AT_ONCE: Final = 1_000
# The thread that stores spans makes turns of them itself if this many wait.
_WAITING_MAX: Final = 20_000
_STORE_FAULT: Final = "service_turns"
_SPANS_FAULT: Final = "service_spans"

_NEWEST: Final = "(SELECT max(stored_unix_ns) FROM spans)"

_log = logging.getLogger(__name__)


def _never_back() -> Callable[[], int]:
    """Return a wall clock that never goes back: the time at the call plus the monotonic time since then."""
    since_ns = time.time_ns() - time.monotonic_ns()
    return lambda: since_ns + time.monotonic_ns()


class ServiceTurns:
    """Takes tables of stored spans and stores their turns; thread-safe.

    `stored` is called with the complete turns, each once, `revised` with those that changed after that. An error that a
    span causes is not raised, as it would keep others from being committed: it becomes a fault.
    """

    def __init__(
        self,
        writer: StoreWriter,
        stored: Callable[[Sequence[Turn]], None],
        state: IngestState,
        faults: FaultBoard,
        *,
        revised: Callable[[Sequence[Turn]], None] = lambda _turns: None,
        unix_ns: Callable[[], int] | None = None,
    ) -> None:
        self._revised = revised
        self._writer = writer
        self._stored = stored
        self._state = state
        self._faults = faults
        self._unix_ns = _never_back() if unix_ns is None else unix_ns
        self._taking = threading.Lock()
        self._arrived: list[SpanRow] = []
        self._storing = threading.Lock()
        self._assembly = TurnAssembly()

    def take(self, spans: ArrowTable) -> None:
        """Take spans that were just stored."""
        try:
            if (foreign := _foreign_spans(spans)) is not None:
                for first in range(0, foreign.num_rows, _ROWS_AT_ONCE):
                    rows = [span_from_row(row) for row in foreign.slice(first, _ROWS_AT_ONCE).to_pylist()]
                    with self._taking:
                        self._arrived += rows
        except Exception as error:  # noqa: BLE001 - the spans are stored, whatever becomes of them
            self._spans_failed(error)
        if len(self._arrived) > _WAITING_MAX:
            self.refresh()

    def recover(self) -> None:
        """Load the traces with spans stored within `REMEMBERED_NS` before the newest one, and register those that may
        still change. Raises StoreError if they cannot be read."""
        with self._writer.database.snapshot() as cursor:
            newest_last = cursor.execute(
                f"""
                SELECT trace_id, max(stored_unix_ns) >= {_NEWEST} - ? AS is_recent FROM spans
                WHERE scope_name IS DISTINCT FROM ? AND stored_unix_ns >= {_NEWEST} - ?
                GROUP BY trace_id ORDER BY max(stored_unix_ns)
                """,
                [REMEMBERED_NS, semconv.SCOPE, UPDATED_WITHIN_NS],
            ).fetchall()
        self._assembly.forget(trace_id for trace_id, _ in newest_last)
        recent = [trace_id for trace_id, is_recent in newest_last if is_recent]
        for first in range(0, len(recent), _TRACES_AT_ONCE):
            self._take_up(recent[first : first + _TRACES_AT_ONCE])
            self.refresh()

    def refresh(self) -> None:
        """Store new, changed and newly complete turns. Turns that cannot be stored now are stored later."""
        self._store(is_last=False)

    def close(self) -> None:
        """Store all turns whose own span has arrived as complete, without waiting for later spans."""
        self._store(is_last=True)

    def _store(self, *, is_last: bool) -> None:
        with self._storing:
            try:
                self._take_arrived()
                changes = self._assembly.changes(self._unix_ns(), is_last=is_last)
                for fault in self._assembly.faults:
                    self._faults.set(_SPANS_FAULT, f"spans of a service could not become turns ({fault})")
                self._assembly.faults.clear()
                replaced = self._replaced(changes) if changes else ()
                self._assembly.stored(self._unix_ns())
            except StoreError as error:
                self._faults.set(_STORE_FAULT, f"turns of services wait to be stored: {error}")
                return
            except Exception as error:  # noqa: BLE001 - what comes later is looked at all the same
                self._spans_failed(error)
                return
            self._faults.set(_STORE_FAULT, None)
            self._count(changes, replaced)

    def _replaced(self, changes: Sequence[TurnChange]) -> Sequence[Turn]:
        """Store changes; return the turns that are durable. A turn that cannot be stored does not keep others from
        being stored. Raises StoreError if nothing can be stored at the moment."""
        try:
            return self._writer.replace_turns(changes)
        except Exception as error:  # a turn may hold what pyarrow, DuckDB or our own encoding refuses, each its own way
            if isinstance(error, StoreError) and isinstance(error.__cause__, duckdb.OperationalError | OSError | None):
                raise
            if len(changes) == 1:
                self._spans_failed(error)
                return ()
            middle = len(changes) // 2
            return [*self._replaced(changes[:middle]), *self._replaced(changes[middle:])]

    def _take_arrived(self) -> None:
        with self._taking:
            arrived, self._arrived = self._arrived, []
        if forgotten := self._assembly.forgotten(span.trace_id for span in arrived):
            self._take_up(forgotten)
        self._assembly.add(arrived, self._unix_ns())

    def _take_up(self, trace_ids: Sequence[str]) -> None:
        """Load the spans and the turns of traces again."""
        columns = ", ".join(SCHEMAS["spans"].names)
        with self._writer.database.snapshot() as cursor:
            rows = cursor.sql(
                f"""
                SELECT {columns} FROM spans WHERE trace_id IN (SELECT unnest(?::VARCHAR[]))
                    AND scope_name IS DISTINCT FROM ? AND stored_unix_ns >= {_NEWEST} - ?
                """,
                params=[list(trace_ids), semconv.SCOPE, UPDATED_WITHIN_NS],
            ).to_arrow_table()
            turns = _stored_turns(cursor, trace_ids)
        foreign = _foreign_spans(rows)
        spans = [] if foreign is None else [span_from_row(row) for row in foreign.to_pylist()]
        self._assembly.take_up(spans, turns, self._unix_ns())

    def _count(self, changes: Sequence[TurnChange], replaced: Sequence[Turn]) -> None:
        """Count the outcomes of spans and turns."""
        assembly, state = self._assembly, self._state
        ids = {(turn.trace_id, turn.span_id) for turn in replaced}
        durable = [
            (change, turn)
            for change in changes
            if (turn := change.turn) is not None and (turn.trace_id, turn.span_id) in ids
        ]
        first = [turn for change, turn in durable if change.is_first]
        revised = [turn for change, turn in durable if change.is_revised]
        with state.lock:
            state.framework_spans_given_up = assembly.given_up
            state.framework_spans_left_over = assembly.left_over
            state.framework_spans_late = assembly.late
            state.framework_spans_open = assembly.open_spans
            state.unstorable_turns = assembly.unstorable
            state.revised_turns += len(revised)
        if first:
            self._stored(first)
        if revised:
            self._revised(revised)

    def _spans_failed(self, error: Exception) -> None:
        _log.exception("spans of a service could not become turns")
        self._faults.set(_SPANS_FAULT, f"spans of a service could not become turns ({type(error).__name__}: {error})")


def _foreign_spans(spans: ArrowTable) -> ArrowTable | None:
    """The rows of a table of spans that an adapter may use; None if there are none."""
    names = zip(spans.column("scope_name").to_pylist(), spans.column("span_name").to_pylist(), strict=True)
    wanted = [
        scope != semconv.SCOPE and is_foreign(one_line(scope or ""), one_line(name or "")) for scope, name in names
    ]
    return spans.filter(pa.array(wanted, pa.bool_())) if any(wanted) else None


def _stored_turns(cursor: duckdb.DuckDBPyConnection, trace_ids: Sequence[str]) -> list[Turn]:
    """The stored turns that services reported in some traces, except those that this version cannot read."""
    stored = cursor.sql(
        "SELECT * FROM turns WHERE trace_id IN (SELECT unnest(?::VARCHAR[])) AND source = 'service'",
        params=[list(trace_ids)],
    ).to_arrow_table()
    turns: list[Turn] = []
    for row in stored.to_pylist():
        try:
            turns.append(turn_from_row(row))
        except msgspec.ValidationError as error:
            _log.warning("a turn cannot be recognized (%s)", error)
    return turns
