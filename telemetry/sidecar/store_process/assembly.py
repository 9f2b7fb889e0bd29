"""Makes turns of the committed spans of voice frameworks, and stores them through the one writer, each once.

Nothing about open turns is written down: what is open is found again in the stored spans of the time before the last
commit, which `recover` reads at the start. Turns that are stored already are derived from them once more, and known by
the ids of the framework's own turn span. Where late spans make another turn of one, it takes the place of the first.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from telemetry.model.errors import StoreError
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.turn_assembly import GRACE_NS, TurnAssembly
from telemetry.sidecar.ingest_state import IngestState, count_names
from telemetry.sidecar.store_process.fault_board import FaultBoard
from telemetry.sidecar.store_process.foreign_spans import foreign_spans, stored_foreign_spans, stored_turns
from telemetry.store.schema import ArrowTable, Batch, fits, span_from_row
from telemetry.store.writer import AppendedTables, StoreWriter

# A turn takes no longer than this from its first span to its own one, its grace period included.
RECOVERED_NS: Final = 15 * 60 * 1_000_000_000 + GRACE_NS
# Rows become objects in parts of this many.
_ROWS_AT_ONCE: Final = 1_000
_STORE_FAULT: Final = "service_turns"
_REVISION_FAULT: Final = "revised_turns"
_SPANS_FAULT: Final = "service_spans"

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
            if (found := foreign_spans(spans)) is not None:
                for first in range(0, found.num_rows, _ROWS_AT_ONCE):
                    self._add([span_from_row(row) for row in found.slice(first, _ROWS_AT_ONCE).to_pylist()])
        except Exception as error:  # noqa: BLE001 - the spans are stored, whatever becomes of them
            self._spans_failed(error)

    def recover(self) -> None:
        """Take the stored spans of which turns may still be open: those stored within `RECOVERED_NS` before the last
        commit, whenever that was."""
        directory, manifest = self._writer.directory, self._writer.manifest
        last_unix_ns = max((each.stored_unix_ns for each in manifest.of("spans")), default=0)
        spans, turns = (
            [each for each in manifest.of(table) if each.stored_unix_ns >= last_unix_ns - RECOVERED_NS]
            for table in ("spans", "turns")
        )
        tables: list[ArrowTable] = []
        span_ids: list[ArrowTable] = []
        settled: set[tuple[str, str]] = set()
        for segment in spans:
            for found in stored_foreign_spans(directory, [segment]):
                tables.append(found)
                span_ids += found.column("span_id").chunks
                if segment.stored_unix_ns < last_unix_ns - RECOVERED_NS // 2:
                    # What belongs to these may have been stored before what is read here.
                    ids = (found.column(name).to_pylist() for name in ("trace_id", "span_id"))
                    settled.update(zip(*ids, strict=True))
        stored = stored_turns(directory, turns, pa.concat_arrays(span_ids)) if span_ids else {}
        self._assembly = TurnAssembly(stored=stored, settled=settled)
        for found in tables:
            self.take(found)

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
