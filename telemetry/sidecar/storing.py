"""The stages of requests: each is decoded, several are committed in one transaction, and then counted and forwarded.

A request that cannot be decoded, or whose content cannot be stored, is answered accordingly and does not affect others.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import duckdb

from telemetry.model.errors import StoreError
from telemetry.model.turns import Turn
from telemetry.sidecar.counts.exposition import Exposition
from telemetry.sidecar.counts.state import IngestState, count_names
from telemetry.sidecar.faults import FaultBoard, StoreWatch
from telemetry.sidecar.forwarding.bounded_queue import Received
from telemetry.sidecar.forwarding.forwarder import Forwarding
from telemetry.sidecar.ingest import ExportRequest, Outcome, Taken
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.json_requests import metrics_from_json, traces_from_json
from telemetry.sidecar.otlp.opening import DecodedRequest
from telemetry.sidecar.otlp.tables import DecodedTables, read_request, tables_of
from telemetry.sidecar.privacy import Redactor
from telemetry.sidecar.service_turns import ServiceTurns
from telemetry.sidecar.signals import Signal
from telemetry.store.schema import turns_table
from telemetry.store.writer import AppendedTables, StoreWriter

_FROM_JSON: Final[dict[Signal, Callable[[bytes], bytes]]] = {"traces": traces_from_json, "metrics": metrics_from_json}
_METRICS_FAULT: Final = "metrics"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded request, and the received request, in protobuf."""

    content: DecodedRequest
    as_received: Received

    @property
    def outcome(self) -> Outcome:
        """The outcome once it is stored."""
        if self.content.fault is not None:
            return OtlpDecodeError(self.content.fault)
        return Taken(self.content.rejected, tuple(self.content.reasons))


def decode(request: ExportRequest, redactor: Redactor | None = None) -> Decoded:
    """Decode a request, without what the redactor removes. A request that cannot be decoded has a fault."""
    body = request.body
    try:
        if request.encoding == "json":
            body = _FROM_JSON[request.signal](body)
        content = read_request(body, request.signal, redactor)
    except OtlpDecodeError as error:
        content = DecodedRequest(fault=str(error))
    except Exception as error:  # noqa: BLE001 - whatever a body provokes, its neighbors are stored
        content = DecodedRequest(fault=f"the body could not be decoded ({type(error).__name__}: {error})")
    return Decoded(content, Received(request.signal, body, content.received))


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of everything that was stored: for the sidecar's state, and of turns for `/metrics`."""

    state: IngestState
    exposition: Exposition
    faults: FaultBoard

    def decoded(self, tables: DecodedTables) -> None:
        """Count received items."""
        state = self.state
        readable = [request for request in tables.requests if request.fault is None]
        with state.lock:
            state.requests += len(readable)
            state.received += sum(request.received for request in readable)
            state.rejected += sum(request.rejected for request in readable)
            state.changed += sum(request.changed for request in readable)
            state.last_receive_unix_ns = time.time_ns()
            count_names(state.unmapped_spans, tables.unmapped)
            count_names(state.unknown_turn_fields, tables.unknown_turn_fields)

    def appended(self, appended: AppendedTables) -> None:
        """Count the stored rows, except turns."""
        state = self.state
        with state.lock:
            state.duplicates += appended.duplicates
            state.stored_spans += appended.spans.num_rows
            state.stored_points += appended.points.num_rows

    def stored(self, turns: Sequence[Turn]) -> None:
        """Count complete turns that were stored, each once."""
        with self.state.lock:
            self.state.stored_turns += len(turns)
        try:
            self.exposition.observe(turns)
        except Exception as error:  # noqa: BLE001 - the rows are stored, whatever the counts say
            _log.exception("turns could not be counted for /metrics")
            sentence = f"/metrics lacks turns that are stored ({type(error).__name__}: {error})"
            self.faults.set(_METRICS_FAULT, sentence)


class GroupStages:
    """The stages of requests; `ingest` runs each in one thread."""

    def __init__(
        self,
        writer: StoreWriter,
        redactor: Redactor,
        counts: Counts,
        service_turns: ServiceTurns,
        *,
        forwarding: Forwarding,
        watch: StoreWatch,
    ) -> None:
        self._writer = writer
        self._redactor = redactor
        self._counts = counts
        self._service_turns = service_turns
        self._forwarding = forwarding
        self._watch = watch
        self._to_count: list[tuple[DecodedTables, AppendedTables | None]] = []
        self._to_forward: list[Received] = []

    def decode(self, request: ExportRequest) -> Decoded:
        """Decode a request, without what may not be stored."""
        return decode(request, self._redactor)

    def commit(self, decoded: Sequence[Decoded]) -> Sequence[Outcome]:
        """Store requests in one transaction; return their outcomes. Requests that cannot be stored now are to be sent
        again; one whose content cannot be stored does not keep others from being stored."""
        appended: AppendedTables | None = None
        outcomes = [request.outcome for request in decoded]
        try:
            tables = tables_of([request.content for request in decoded])
            if tables.spans.num_rows or tables.points.num_rows:
                appended = self._writer.append_tables(turns_table(tables.turns), tables.spans, tables.points)
        except Exception as error:  # noqa: BLE001 - what one request holds keeps no other from being stored
            if isinstance(error, StoreError) and isinstance(error.__cause__, duckdb.OperationalError | OSError):
                self._watch.failed(error)
                return [error if isinstance(outcome, Taken) else outcome for outcome in outcomes]
            if len(decoded) > 1:
                middle = len(decoded) // 2
                return [*self.commit(decoded[:middle]), *self.commit(decoded[middle:])]
            _log.exception("a request could not be stored")
            return [OtlpDecodeError(f"the request could not be stored ({type(error).__name__}: {error})")]
        self._to_count.append((tables, appended))
        self._to_forward += [
            request.as_received for request in decoded if request.content.received > request.content.rejected
        ]
        return outcomes

    def count(self) -> None:
        """Count the requests stored since the last call, make turns from them, and forward them."""
        counted, self._to_count = self._to_count, []
        forwarded, self._to_forward = self._to_forward, []
        for tables, appended in counted:
            self._counts.decoded(tables)
            if appended is not None:
                self._counts.appended(appended)
                self._counts.stored([tables.turns[place] for place in appended.turn_places])
                self._service_turns.take(appended.spans)
        self._forwarding.add(forwarded)
