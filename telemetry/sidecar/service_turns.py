"""Makes turns of the committed spans of voice frameworks, and stores them through the one writer, each once.

Nothing about open turns is written down: what is open is found again in the stored spans of the time before the last
commit, which `recover` reads at the start. Turns that are stored already are derived from them once more, and known by
the ids of the framework's own turn span. Where late spans make another turn of one, it takes the place of the first.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute

from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.model.foreign_text import one_line
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.turn_assembly import GRACE_NS, TurnAssembly, is_foreign
from telemetry.sidecar.counts.state import IngestState, count_names
from telemetry.sidecar.faults import FaultBoard
from telemetry.store.schema import SCHEMAS, ArrowTable, Batch, fits, span_from_row, turn_from_row
from telemetry.store.writer import AppendedTables, StoreWriter

# A turn takes no longer than this from its first span to its own one, its grace period included.
RECOVERED_NS: Final = 15 * 60 * 1_000_000_000 + GRACE_NS
# Rows become objects in parts of this many.
_ROWS_AT_ONCE: Final = 1_000
_STORE_FAULT: Final = "service_turns"
_REVISION_FAULT: Final = "revised_turns"
_SPANS_FAULT: Final = "service_spans"

_NAMES: Final = ("scope_name", "span_name")
# Spans that are not ours, of the last time in which any was stored.
_RECOVERED: Final = "scope_name IS DISTINCT FROM ? AND stored_unix_ns >= (SELECT max(stored_unix_ns) FROM spans) - ?"
_RECOVERED_VALUES: Final = (semconv.SCOPE, RECOVERED_NS)

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

_log = logging.getLogger(__name__)


class ServiceTurns:
    """Takes tables of spans that were stored and stores the turns that come due; thread-safe.

    `stored` is called with what was appended, `revised` with turns that took the place of others. Nothing that a span
    provokes is raised: it would keep others from being committed. It becomes a fault instead.
    """

    def __init__(
        self,
        writer: StoreWriter,
        stored: Callable[[AppendedTables], None],
        state: IngestState,
        faults: FaultBoard,
        *,
        revised: Callable[[ArrowTable], None] = lambda _turns: None,
        unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._revised = revised
        self._writer = writer
        self._stored = stored
        self._state = state
        self._faults = faults
        self._unix_ns = unix_ns
        self._assembling = threading.Lock()
        self._assembly = TurnAssembly()
        self._storing = threading.Lock()
        self._unstored: Sequence[Turn] = ()
        self._unrevised: dict[tuple[str, str], Turn] = {}

    def take(self, spans: ArrowTable) -> None:
        """Take spans that were stored just now."""
        try:
            if (found := _foreign_spans(spans)) is not None:
                for first in range(0, found.num_rows, _ROWS_AT_ONCE):
                    self._add([span_from_row(row) for row in found.slice(first, _ROWS_AT_ONCE).to_pylist()])
        except Exception as error:  # noqa: BLE001 - the spans are stored, whatever becomes of them
            self._spans_failed(error)

    def recover(self) -> None:
        """Take the stored spans of which turns may still be open: those stored within `RECOVERED_NS` before the last
        of them, whenever that was. Raises StoreError when they cannot be read."""
        with self._writer.database.snapshot() as cursor:
            stored, settled = _stored_turns(cursor)
            self._assembly = TurnAssembly(stored=stored, settled=settled)
            columns = ", ".join(SCHEMAS["spans"].names)
            found = cursor.sql(
                f"SELECT {columns} FROM spans WHERE {_RECOVERED} ORDER BY commit_number, rowid",
                params=_RECOVERED_VALUES,
            )
            for batch in found.to_arrow_reader(_ROWS_AT_ONCE):
                self.take(pa.Table.from_batches([batch]))

    def look(self) -> None:
        """Store the turns that have come due, and those that changed. What cannot be stored now is stored later."""
        self._store(lambda: self._assembly.due(self._unix_ns()))
        self._revise()

    def close(self) -> None:
        """Store all turns whose own span has come; what comes later of them is not waited for."""
        self._store(self._assembly.flush)
        self._revise()

    def _add(self, spans: Sequence[SpanRow]) -> None:
        with self._assembling:
            try:
                self._assembly.add(spans, self._unix_ns())
            except Exception as error:  # noqa: BLE001 - one span must not keep others from becoming turns
                self._spans_failed(error)
                self._add_apart(spans)
            self._count()

    def _count(self) -> None:
        """Show what became of spans that are part of no turn; to be called by the thread that assembles."""
        assembly, state = self._assembly, self._state
        unmapped, assembly.unmapped = assembly.unmapped, Counter[str]()
        with state.lock:
            count_names(state.unmapped_spans, unmapped)
            state.framework_spans_given_up = assembly.given_up
            state.framework_spans_left_over = assembly.left_over
            state.framework_spans_late = assembly.late
            state.framework_spans_open = assembly.open_spans

    def _add_apart(self, spans: Sequence[SpanRow]) -> None:
        for span in spans:
            try:
                self._assembly.add([span], self._unix_ns())
            except Exception:  # noqa: BLE001 - the next one may be read
                _log.exception("the span %r of the scope %r could not be read", span.name, span.scope_name)

    def _store(self, ready: Callable[[], list[Turn]]) -> None:
        with self._storing:
            while True:
                if not self._unstored:
                    self._unstored = self._ready(ready)
                if not self._unstored:
                    return
                try:
                    appended = self._writer.append(Batch(turns=self._unstored))
                except StoreError as error:
                    self._faults.set(_STORE_FAULT, f"turns of services wait to be stored: {error}")
                    return
                self._unstored = ()
                self._faults.set(_STORE_FAULT, None)
                self._stored(appended)

    def _revise(self) -> None:
        """Put the turns that changed in the place of what was stored of them."""
        with self._storing:
            with self._assembling:
                for turn in self._assembly.revised():
                    self._unrevised[turn.trace_id, turn.span_id] = turn
            waiting = {(turn.trace_id, turn.span_id) for turn in self._unstored}
            if waiting:
                self._unstored = [self._unrevised.pop((t.trace_id, t.span_id), t) for t in self._unstored]
            turns = [turn for turn in self._unrevised.values() if fits(turn)]
            if not turns:
                return
            try:
                found = self._writer.replace_turns(turns)
            except StoreError as error:
                self._faults.set(_REVISION_FAULT, f"turns of services wait to be judged anew: {error}")
                return
            self._unrevised = {}
            self._faults.set(_REVISION_FAULT, None)
            with self._state.lock:
                self._state.revised_turns += found.num_rows
            if found.num_rows:
                self._revised(found)

    def _ready(self, ready: Callable[[], list[Turn]]) -> list[Turn]:
        with self._assembling:
            try:
                found = ready()
            except Exception as error:  # noqa: BLE001 - what is open stays open
                self._spans_failed(error)
                return []
            self._count()
        storable = [turn for turn in found if fits(turn)]
        if len(storable) < len(found):
            with self._state.lock:
                self._state.unstorable_turns += len(found) - len(storable)
            _log.warning("%d turns of services have times that cannot be stored", len(found) - len(storable))
        return storable

    def _spans_failed(self, error: Exception) -> None:
        _log.exception("spans of a service could not become turns")
        self._faults.set(_SPANS_FAULT, f"spans of a service could not become turns ({type(error).__name__}: {error})")


def _foreign_spans(spans: ArrowTable) -> ArrowTable | None:
    """The rows of a table of spans that an adapter may want; None where there is none.

    Our own spans cost one comparison of a column.
    """
    is_other = pc.not_equal(spans.column("scope_name"), semconv.SCOPE)
    if not spans.num_rows or not pc.any(is_other).as_py():
        return None
    # Each pair of names as two numbers in one: no character is certain not to be in a name.
    scopes, names = (_encoded(spans.column(name)) for name in _NAMES)
    pairs = scopes.indices.to_numpy().astype(np.int64) * max(len(names.dictionary), 1) + names.indices.to_numpy()
    found, of_row = np.unique(pairs, return_inverse=True)
    scope_names, span_names = scopes.dictionary.to_pylist(), names.dictionary.to_pylist()
    wanted = np.array(
        [_is_wanted(scope_names[pair // len(span_names)], span_names[pair % len(span_names)]) for pair in found],
        np.bool_,
    )
    return spans.filter(pa.array(wanted[of_row])) if wanted.any() else None


def _encoded(texts: Any) -> Any:
    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return pc.fill_null(whole, "").dictionary_encode()


def _is_wanted(scope_name: str, span_name: str) -> bool:
    return scope_name != semconv.SCOPE and is_foreign(one_line(scope_name), one_line(span_name))


def _stored_turns(
    cursor: duckdb.DuckDBPyConnection,
) -> tuple[dict[tuple[str, str], Turn], set[tuple[str, str]]]:
    """Of the spans that are taken again: the turns of services that have their ids, by trace and span, and the ids of
    those with which others may belong together that are not among them."""
    cursor.execute(
        f"CREATE OR REPLACE TEMP TABLE recovered AS SELECT trace_id, span_id, stored_unix_ns FROM spans "
        f"WHERE {_RECOVERED}",
        _RECOVERED_VALUES,
    )
    settled = cursor.execute(
        "SELECT trace_id, span_id FROM recovered WHERE stored_unix_ns < (SELECT max(stored_unix_ns) FROM spans) - ?",
        [RECOVERED_NS // 2],
    ).fetchall()
    found = cursor.sql(
        """
        SELECT t.* FROM turns t SEMI JOIN recovered r ON t.trace_id = r.trace_id AND t.span_id = r.span_id
        WHERE t.source = 'service'
        """
    ).to_arrow_table()
    cursor.execute("DROP TABLE recovered")
    stored: dict[tuple[str, str], Turn] = {}
    for row in found.to_pylist():
        try:
            turn = turn_from_row(row)
        except msgspec.ValidationError as error:
            _log.warning("a turn cannot be recognized (%s)", error)
            continue
        stored[turn.trace_id, turn.span_id] = turn
    return stored, {(str(trace_id), str(span_id)) for trace_id, span_id in settled}
