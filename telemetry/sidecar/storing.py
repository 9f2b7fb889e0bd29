"""Decodes groups of requests and stores them, each group in one transaction, then counts, forwards and assembles.

A request that cannot be decoded, or stored for what it holds, is answered so and harms no other.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import duckdb
import pyarrow as pa

from telemetry.model.errors import StoreError
from telemetry.sidecar.counts.services import ServiceExposition
from telemetry.sidecar.counts.state import IngestState, count_names
from telemetry.sidecar.counts.turns import Exposition
from telemetry.sidecar.faults import FaultBoard, StoreWatch
from telemetry.sidecar.forwarding.bounded_queue import Received
from telemetry.sidecar.forwarding.forwarder import Forwarding
from telemetry.sidecar.ingest import ExportRequest, Outcome, Taken
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.json_requests import metrics_from_json, traces_from_json
from telemetry.sidecar.otlp.tables import DecodedTables, decode_metrics, decode_traces
from telemetry.sidecar.privacy.requests import Redactor
from telemetry.sidecar.service_turns import ServiceTurns
from telemetry.sidecar.signals import Signal
from telemetry.store.schema import SCHEMAS, ArrowTable, without_rows
from telemetry.store.writer import AppendedTables, StoreWriter

_DECODERS: Final[dict[Signal, Callable[[Sequence[bytes], Redactor | None], DecodedTables]]] = {
    "traces": decode_traces,
    "metrics": decode_metrics,
}
_FROM_JSON: Final[dict[Signal, Callable[[bytes], bytes]]] = {"traces": traces_from_json, "metrics": metrics_from_json}
# Making a table of so many columns takes long.
_WITHOUT_ROWS: Final = {table: without_rows(schema) for table, schema in SCHEMAS.items()}
_METRICS_FAULT: Final = "metrics"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class DecodedGroup:
    """A decoded group: the outcome of each request that was decoded (None: it is to be stored), what is to be stored of
    all of them, and the bodies of these as they came, in protobuf."""

    outcomes: list[Outcome]
    tables: list[DecodedTables] = field(default_factory=list[DecodedTables])
    as_received: list[Received] = field(default_factory=list[Received])
    received: int = 0
    rejected: int = 0
    changed: int = 0
    unmapped: Counter[str] = field(default_factory=Counter[str])
    unknown_turn_fields: Counter[str] = field(default_factory=Counter[str])

    def merged(self) -> tuple[ArrowTable, ArrowTable, ArrowTable]:
        """The turns, the spans and the points of all its requests."""
        turns, spans, points = (
            pa.concat_tables(with_rows)
            if (with_rows := [table for each in self.tables if (table := getattr(each, name)).num_rows])
            else without
            for name, without in _WITHOUT_ROWS.items()
        )
        return turns, spans, points


def decode_group(requests: Sequence[ExportRequest], redactor: Redactor | None = None) -> DecodedGroup:
    """Decode requests, without what the redactor takes out of them."""
    group = DecodedGroup([Taken()] * len(requests))
    for signal in _DECODERS:
        bodies: dict[int, bytes] = {}
        for place, request in enumerate(requests):
            if request.signal == signal:
                _in_protobuf(group, place, request, bodies)
        if bodies:
            _decode(group, signal, bodies, redactor)
    return group


def _in_protobuf(group: DecodedGroup, place: int, request: ExportRequest, bodies: dict[int, bytes]) -> None:
    try:
        bodies[place] = request.body if request.encoding == "protobuf" else _FROM_JSON[request.signal](request.body)
    except OtlpDecodeError as error:
        group.outcomes[place] = error
    except Exception as error:  # noqa: BLE001 - whatever a body provokes, its neighbors are stored
        group.outcomes[place] = _undecodable(error)


def _decode(group: DecodedGroup, signal: Signal, bodies: dict[int, bytes], redactor: Redactor | None) -> None:
    try:
        tables = _DECODERS[signal](list(bodies.values()), redactor)
    except Exception as error:  # noqa: BLE001 - whatever a body provokes, its neighbors are stored
        if len(bodies) > 1:
            for place, body in bodies.items():
                _decode(group, signal, {place: body}, redactor)
        else:
            group.outcomes[next(iter(bodies))] = _undecodable(error)
        return
    for (place, body), decoded in zip(bodies.items(), tables.requests, strict=True):
        if decoded.fault is not None:
            group.outcomes[place] = OtlpDecodeError(decoded.fault)
            continue
        group.outcomes[place] = Taken(decoded.rejected, tuple(decoded.reasons))
        group.received += decoded.received
        group.rejected += decoded.rejected
        group.changed += decoded.changed
        if decoded.received > decoded.rejected:
            is_without_text = redactor is not None and not redactor.rules.keep_text
            without_text = decoded.body if is_without_text else None
            group.as_received.append(Received(signal, body, decoded.received, without_text))
    group.unmapped += tables.unmapped
    group.unknown_turn_fields += tables.unknown_turn_fields
    if tables.rows:
        group.tables.append(tables)


def _undecodable(error: Exception) -> OtlpDecodeError:
    return OtlpDecodeError(f"the body could not be decoded ({type(error).__name__}: {error})")


@dataclass(frozen=True, slots=True)
class Counts:
    """What is counted of everything that was stored: by the sidecar, and of turns for `/metrics`."""

    state: IngestState
    turns: Exposition
    service_turns: ServiceExposition
    faults: FaultBoard

    def decoded(self, group: DecodedGroup) -> None:
        """Count what arrived."""
        state = self.state
        with state.lock:
            state.requests += sum(isinstance(outcome, Taken) for outcome in group.outcomes)
            state.received += group.received
            state.rejected += group.rejected
            state.changed += group.changed
            state.last_receive_unix_ns = time.time_ns()
            count_names(state.unmapped_spans, group.unmapped)
            count_names(state.unknown_turn_fields, group.unknown_turn_fields)

    def stored(self, appended: AppendedTables) -> None:
        """Count what was stored for good."""
        state = self.state
        with state.lock:
            state.stored_turns += appended.turns.num_rows
            state.stored_spans += appended.spans.num_rows
            state.stored_points += appended.points.num_rows
        try:
            self.turns.observe(appended.turns)
            self.service_turns.observe(appended.turns)
        except Exception as error:  # noqa: BLE001 - the rows are stored, whatever the counts say
            _log.exception("turns could not be counted for /metrics")
            sentence = f"/metrics lacks turns that are stored ({type(error).__name__}: {error})"
            self.faults.set(_METRICS_FAULT, sentence)


class GroupStore:
    """Stores groups of requests; used in one thread."""

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

    def store(self, requests: Sequence[ExportRequest]) -> list[Outcome]:
        """Store requests in one transaction; what became of each. Those that cannot be stored now are to be sent again,
        and one that cannot be stored for what it holds keeps no other from being stored."""
        group = decode_group(requests, self._redactor)
        appended: AppendedTables | None = None
        try:
            if group.tables:
                appended = self._writer.append_tables(*group.merged())
        except Exception as error:  # noqa: BLE001 - what one request holds keeps no other from being stored
            if isinstance(error, StoreError) and isinstance(error.__cause__, duckdb.OperationalError | OSError):
                self._watch.failed(error)
                return [error if isinstance(outcome, Taken) else outcome for outcome in group.outcomes]
            if len(requests) > 1:
                middle = len(requests) // 2
                return [*self.store(requests[:middle]), *self.store(requests[middle:])]
            _log.exception("a request could not be stored")
            return [OtlpDecodeError(f"the request could not be stored ({type(error).__name__}: {error})")]
        self._counts.decoded(group)
        if appended is not None:
            with self._counts.state.lock:
                self._counts.state.duplicates += appended.duplicates
            self._counts.stored(appended)
            self._service_turns.take(appended.spans)
        self._forwarding.add(group.as_received)
        return group.outcomes
