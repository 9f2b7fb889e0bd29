"""Decodes a group of OTLP export requests into the tables of the store. Pure: bytes in, tables out."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.decode import Decoded, Encoding
from telemetry.sidecar.otlp.decode import decode_metrics as _decode_metrics
from telemetry.sidecar.otlp.decode import decode_traces as _decode_traces
from telemetry.store.schema import ArrowTable, points_table, spans_table, turns_table


@dataclass(slots=True)
class DecodedRequest:
    """What became of one request of a group.

    `received` counts its items (spans, metric points), `rejected` those that are not stored, for the first few
    `reasons`. `fault` is a sentence when the body cannot be decoded: then nothing of it is in the tables.
    """

    received: int = 0
    rejected: int = 0
    reasons: list[str] = field(default_factory=list[str])
    fault: str | None = None


@dataclass(slots=True)
class DecodedTables:
    """A decoded group: what to store of all its requests together, and what became of each, in their order.

    `unmapped` counts spans with unknown names, `unknown_turn_fields` unknown attributes of turns.
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
        return self.turns.nbytes + self.spans.nbytes + self.points.nbytes


def decode_traces(bodies: Sequence[bytes]) -> DecodedTables:
    """Decode the bodies of trace exports in protobuf. A body that cannot be decoded harms no other."""
    return _decode(bodies, _decode_traces)


def decode_metrics(bodies: Sequence[bytes]) -> DecodedTables:
    """Decode the bodies of metrics exports in protobuf. A body that cannot be decoded harms no other."""
    return _decode(bodies, _decode_metrics)


def _decode(bodies: Sequence[bytes], decode: Callable[[bytes, Encoding], Decoded]) -> DecodedTables:
    requests: list[DecodedRequest] = []
    found: list[Decoded] = []
    for body in bodies:
        try:
            decoded = decode(body, "protobuf")
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
