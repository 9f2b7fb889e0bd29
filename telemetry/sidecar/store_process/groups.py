"""Decodes a group of requests into what is to be logged, answered, counted and committed."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from telemetry.sidecar.messages import Answer, Encoding, Signal, Take
from telemetry.sidecar.otlp import decode
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.decode import Decoded
from telemetry.sidecar.otlp.tables import DecodedRequest, DecodedTables, decode_metrics, decode_traces
from telemetry.store.ingest_log import Record
from telemetry.store.schema import ArrowTable, points_table, spans_table, turns_table

_Decode = Callable[[Sequence[bytes]], DecodedTables]

_Form = tuple[Signal, Encoding]

# What the kinds of records in the ingest log mean.
_KINDS: Final[dict[_Form, int]] = {
    ("traces", "protobuf"): 1,
    ("metrics", "protobuf"): 2,
    ("traces", "json"): 3,
    ("metrics", "json"): 4,
}
_FORMS: Final = {kind: form for form, kind in _KINDS.items()}


@dataclass(slots=True)
class DecodedGroup:
    """A decoded group. `records` and `tables` hold what the requests without a failing answer brought."""

    answers: list[Answer] = field(default_factory=list[Answer])
    records: list[Record] = field(default_factory=list[Record])
    tables: list[DecodedTables] = field(default_factory=list[DecodedTables])
    received: int = 0
    rejected: int = 0
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


def decode_group(requests: Sequence[Take]) -> DecodedGroup:
    """Decode requests. One that cannot be decoded has an answer that says so, and harms no other."""
    group = DecodedGroup()
    for form in _KINDS:
        chosen = [request for request in requests if (request.signal, request.encoding) == form]
        if chosen:
            _decode(group, form, chosen)
    return group


def take_again(number: int, record: Record) -> Take | None:
    """Make a record of the log a request again; None for a kind that this version does not know."""
    if record.kind not in _FORMS:
        return None
    signal, encoding = _FORMS[record.kind]
    return Take(number, signal, encoding, alone=False, body=record.payload)


def merged(groups: Sequence[DecodedGroup]) -> tuple[ArrowTable, ArrowTable, ArrowTable]:
    """Put the turns, the spans and the points of groups together."""
    tables = [tables for group in groups for tables in group.tables]
    return (
        pa.concat_tables([each.turns for each in tables]),
        pa.concat_tables([each.spans for each in tables]),
        pa.concat_tables([each.points for each in tables]),
    )


def _decode(group: DecodedGroup, form: _Form, requests: Sequence[Take]) -> None:
    bodies = [request.body for request in requests]
    try:
        tables = _DECODERS[form](bodies)
    except Exception as error:  # noqa: BLE001 - whatever a body provokes, its neighbors are stored
        if len(requests) > 1:
            for request in requests:
                _decode(group, form, [request])
        else:
            sentence = f"the body could not be decoded ({type(error).__name__}: {error})"
            group.answers.append(Answer(requests[0].number, undecodable=sentence))
        return
    for request, decoded in zip(requests, tables.requests, strict=True):
        if decoded.fault is not None:
            group.answers.append(Answer(request.number, undecodable=decoded.fault))
            continue
        group.answers.append(Answer(request.number, decoded.rejected, tuple(decoded.reasons)))
        group.received += decoded.received
        group.rejected += decoded.rejected
        if decoded.received > decoded.rejected:
            group.records.append(Record(_KINDS[form], request.body))
    group.unmapped += tables.unmapped
    group.unknown_turn_fields += tables.unknown_turn_fields
    if tables.rows:
        group.tables.append(tables)


def _json(decode_one: Callable[[bytes, Encoding], Decoded]) -> _Decode:
    """Make a decoder of JSON bodies."""

    def decode_bodies(bodies: Sequence[bytes]) -> DecodedTables:
        requests: list[DecodedRequest] = []
        found: list[Decoded] = []
        for body in bodies:
            try:
                decoded = decode_one(body, "json")
            except OtlpDecodeError as error:
                requests.append(DecodedRequest(fault=str(error)))
                continue
            requests.append(DecodedRequest(decoded.received, decoded.rejected, decoded.reasons))
            found.append(decoded)
        return DecodedTables(
            requests,
            turns_table([turn for decoded in found for turn in decoded.turns]),
            spans_table([span for decoded in found for span in decoded.spans]),
            points_table([point for decoded in found for point in decoded.points]),
            unmapped=sum((decoded.unmapped for decoded in found), Counter[str]()),
            unknown_turn_fields=sum((decoded.unknown_turn_fields for decoded in found), Counter[str]()),
        )

    return decode_bodies


_DECODERS: Final[dict[_Form, _Decode]] = {
    ("traces", "protobuf"): decode_traces,
    ("metrics", "protobuf"): decode_metrics,
    ("traces", "json"): _json(decode.decode_traces),
    ("metrics", "json"): _json(decode.decode_metrics),
}
