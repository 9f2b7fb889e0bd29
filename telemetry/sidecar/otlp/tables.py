"""Decodes a group of OTLP export requests into the tables of the store. Pure: bytes in, tables out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import pyarrow as pa

from telemetry.model import semconv
from telemetry.model.foreign_text import one_line
from telemetry.sidecar.adapters.turn_assembly import is_foreign
from telemetry.sidecar.otlp.arrow_messages import compute
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.metric_points import read_points
from telemetry.sidecar.otlp.span_chunks import decode_chunks
from telemetry.sidecar.otlp.span_groups import SpanGroup
from telemetry.sidecar.privacy.requests import Redactor
from telemetry.store.schema import SCHEMAS, ArrowTable, PointRow, Table, points_table, without_rows

KNOWN_SPANS: Final = frozenset(
    {
        semconv.SPAN_RUN,
        semconv.SPAN_CALL,
        semconv.SPAN_TURN,
        semconv.SPAN_ASR,
        semconv.SPAN_LLM,
        semconv.SPAN_TTS,
    }
)
_KNOWN_SPANS: Final = pa.array(sorted(KNOWN_SPANS))
_REASONS_MAX: Final = 3
# Making a table of so many columns takes longer than decoding a small request.
_EMPTY: Final = {name: without_rows(schema) for name, schema in SCHEMAS.items()}


@dataclass(slots=True)
class DecodedRequest:
    """What became of one request of a group.

    `received` counts its items (spans, metric points), `rejected` those that are not stored, `changed` those that are
    stored without something of them, all for the first few `reasons`. `fault` is a sentence when the body cannot be
    decoded: then nothing of it is in the tables. `body` is what may be written of it.
    """

    body: bytes
    received: int = 0
    rejected: int = 0
    changed: int = 0
    reasons: list[str] = field(default_factory=list[str])
    fault: str | None = None

    def give(self, reason: str) -> None:
        """Add a reason where it is among the first few."""
        if len(self.reasons) < _REASONS_MAX and reason not in self.reasons:
            self.reasons.append(reason)


@dataclass(slots=True)
class DecodedTables:
    """A decoded group: what to store of all its requests together, and what became of each, in their order.

    `unmapped` counts spans that are neither ours nor of a known framework by "scope/span name", `unknown_turn_fields`
    unknown attributes of turns.
    """

    requests: list[DecodedRequest]
    turns: ArrowTable
    spans: ArrowTable
    points: ArrowTable
    unmapped: Counter[str] = field(default_factory=Counter[str])
    unknown_turn_fields: Counter[str] = field(default_factory=Counter[str])

    @property
    def rows(self) -> int:
        """How many rows all tables have."""
        return self.turns.num_rows + self.spans.num_rows + self.points.num_rows

    @property
    def size_bytes(self) -> int:
        """What the tables take in memory."""
        return sum(each.nbytes for each in (self.turns, self.spans, self.points) if each.num_rows)


def decode_traces(bodies: Sequence[bytes], redactor: Redactor | None = None) -> DecodedTables:
    """Decode the bodies of trace exports in protobuf, without what the redactor takes out of them. A body that cannot
    be decoded harms no other."""
    group = SpanGroup()
    for body in bodies:
        group.add(body)
    decoded = decode_chunks(group, redactor)
    requests = [
        DecodedRequest(b"", fault=fault)
        if fault is not None
        else DecodedRequest(group.body(number) if redactor is not None else body, received=received, changed=changed)
        for number, (body, fault, received, changed) in enumerate(
            zip(bodies, group.faults, group.received, group.changed, strict=True)
        )
    ]
    for number, reason in chain(group.too_large, *(chunk.rejections for chunk in decoded)):
        if requests[number].fault is None:
            requests[number].rejected += 1
            requests[number].give(reason)
    for request, changes in zip(requests, group.changes, strict=True):
        for change in changes if request.fault is None else ():
            request.give(change)
    tables = [chunk.without(group.faulty()) for chunk in decoded]
    spans = _together("spans", [spans for _, spans in tables])
    return DecodedTables(
        requests,
        _together("turns", [turns for turns, _ in tables]),
        spans,
        _EMPTY["points"],
        unmapped=_unmapped(spans),
        unknown_turn_fields=sum((chunk.unknown_fields for chunk in decoded), Counter[str]()),
    )


def decode_metrics(bodies: Sequence[bytes], redactor: Redactor | None = None) -> DecodedTables:
    """Decode the bodies of metrics exports in protobuf, without what the redactor takes out of them. A body that cannot
    be decoded harms no other."""
    requests: list[DecodedRequest] = []
    points: list[PointRow] = []
    for body in bodies:
        try:
            read = read_points(body, redactor)
        except OtlpDecodeError as error:
            requests.append(DecodedRequest(b"", fault=str(error)))
            continue
        reasons = [*read.rejected, *read.changes][:_REASONS_MAX]
        requests.append(DecodedRequest(read.body, read.received, sum(read.rejected.values()), read.changed, reasons))
        points += read.points
    return DecodedTables(requests, _EMPTY["turns"], _EMPTY["spans"], points_table(points))


def _together(name: Table, tables: list[ArrowTable]) -> ArrowTable:
    return pa.concat_tables([_EMPTY[name], *tables]) if len(tables) != 1 else tables[0]


def _unmapped(spans: ArrowTable) -> Counter[str]:
    found = Counter[str]()
    is_unknown = compute.invert(compute.is_in(spans["span_name"], value_set=_KNOWN_SPANS))
    if not compute.any(is_unknown).as_py():
        return found
    names = spans.select(["scope_name", "span_name"]).filter(is_unknown)
    for each in names.group_by(names.schema.names).aggregate([([], "count_all")]).to_pylist():
        scope_name, span_name = one_line(each["scope_name"]), one_line(each["span_name"])
        if not is_foreign(scope_name, span_name):
            found[f"{scope_name}/{span_name}"] += each["count_all"]
    return found
