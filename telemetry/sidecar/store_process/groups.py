"""Decodes a group of requests into what is to be logged, answered, counted and committed."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from telemetry.sidecar.forwarding.bounded_queue import Received
from telemetry.sidecar.messages import Answer, Signal, Take
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.json_requests import metrics_from_json, traces_from_json
from telemetry.sidecar.otlp.tables import DecodedTables, decode_metrics, decode_traces
from telemetry.sidecar.privacy.requests import Redactor
from telemetry.sidecar.store_process.record_kinds import record_of, signal_of
from telemetry.store.ingest_log import Record
from telemetry.store.schema import ArrowTable

_DECODERS: Final[dict[Signal, Callable[[Sequence[bytes], Redactor | None], DecodedTables]]] = {
    "traces": decode_traces,
    "metrics": decode_metrics,
}
_FROM_JSON: Final[dict[Signal, Callable[[bytes], bytes]]] = {"traces": traces_from_json, "metrics": metrics_from_json}


@dataclass(frozen=True, slots=True)
class _Request:
    """A request in protobuf."""

    number: int
    body: bytes


@dataclass(slots=True)
class DecodedGroup:
    """A decoded group. `records` and `tables` hold what the requests without a failing answer brought, `as_received`
    the same as it came and is forwarded."""

    answers: list[Answer] = field(default_factory=list[Answer])
    records: list[Record] = field(default_factory=list[Record])
    as_received: list[Received] = field(default_factory=list[Received])
    tables: list[DecodedTables] = field(default_factory=list[DecodedTables])
    received: int = 0
    rejected: int = 0
    changed: int = 0
    unmapped: Counter[str] = field(default_factory=Counter[str])
    unknown_turn_fields: Counter[str] = field(default_factory=Counter[str])

    @property
    def rows(self) -> int:
        """How many rows it brings."""
        return sum(tables.rows for tables in self.tables)

    @property
    def size_bytes(self) -> int:
        """What its rows take in memory."""
        return sum(tables.size_bytes for tables in self.tables)


def decode_group(requests: Sequence[Take], redactor: Redactor | None = None) -> DecodedGroup:
    """Decode requests, without what the redactor takes out of them: neither the records nor the tables hold it. One
    that cannot be decoded has an answer that says so, and harms no other."""
    group = DecodedGroup()
    for signal in _DECODERS:
        chosen = [found for each in requests if each.signal == signal and (found := _in_protobuf(group, each))]
        if chosen:
            _decode(group, signal, chosen, redactor)
    return group


def take_again(number: int, record: Record) -> Take | None:
    """Make a record of the log a request again; None for a kind that this version does not know."""
    signal = signal_of(record)
    if signal is None:
        return None
    return Take(number, signal, "protobuf", alone=False, body=record.payload)


def merged(groups: Sequence[DecodedGroup]) -> tuple[ArrowTable, ArrowTable, ArrowTable]:
    """Put the turns, the spans and the points of groups together."""
    tables = [tables for group in groups for tables in group.tables]
    return (
        _together([each.turns for each in tables]),
        _together([each.spans for each in tables]),
        _together([each.points for each in tables]),
    )


def _together(tables: Sequence[ArrowTable]) -> ArrowTable:
    with_rows = [table for table in tables if table.num_rows]
    return pa.concat_tables(with_rows) if with_rows else tables[0]


def _in_protobuf(group: DecodedGroup, request: Take) -> _Request | None:
    """The request in protobuf; None when it cannot be decoded, which is its answer then."""
    if request.encoding == "protobuf":
        return _Request(request.number, request.body)
    try:
        return _Request(request.number, _FROM_JSON[request.signal](request.body))
    except OtlpDecodeError as error:
        sentence = str(error)
    except Exception as error:  # noqa: BLE001 - whatever a body provokes, its neighbors are stored
        sentence = _undecodable(error)
    group.answers.append(Answer(request.number, undecodable=sentence))
    return None


def _decode(group: DecodedGroup, signal: Signal, requests: Sequence[_Request], redactor: Redactor | None) -> None:
    try:
        tables = _DECODERS[signal]([request.body for request in requests], redactor)
    except Exception as error:  # noqa: BLE001 - whatever a body provokes, its neighbors are stored
        if len(requests) > 1:
            for request in requests:
                _decode(group, signal, [request], redactor)
        else:
            group.answers.append(Answer(requests[0].number, undecodable=_undecodable(error)))
        return
    is_without_text = redactor is not None and not redactor.rules.keep_text
    for request, decoded in zip(requests, tables.requests, strict=True):
        if decoded.fault is not None:
            group.answers.append(Answer(request.number, undecodable=decoded.fault))
            continue
        group.answers.append(Answer(request.number, decoded.rejected, tuple(decoded.reasons)))
        group.received += decoded.received
        group.rejected += decoded.rejected
        group.changed += decoded.changed
        if decoded.received > decoded.rejected:
            group.records.append(record_of(signal, decoded.body, is_without_text=is_without_text))
            without_text = decoded.body if is_without_text else None
            group.as_received.append(Received(signal, request.body, decoded.received, without_text))
    group.unmapped += tables.unmapped
    group.unknown_turn_fields += tables.unknown_turn_fields
    if tables.rows:
        group.tables.append(tables)


def _undecodable(error: Exception) -> str:
    return f"the body could not be decoded ({type(error).__name__}: {error})"
