"""Reads serialized spans with their resources and scopes into record batches, and checks all that is nested in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from google.protobuf.message import Message
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.sidecar.otlp.arrow_messages import (
    ArrowArray,
    Bits,
    RecordBatch,
    check_message,
    check_nested,
    doubled,
    kinds,
    record_batch,
)
from telemetry.sidecar.otlp.descriptors import reader
from telemetry.sidecar.otlp.span_columns import Places

_spans: Final = reader("Span")
_resources: Final = reader("Resource")
_scopes: Final = reader("InstrumentationScope")
_ARRAY, _KVLIST = 4, 5


@dataclass(frozen=True, slots=True)
class ReadSpans:
    """Record batches of spans, resources and scopes. `kinds` says what the value of each attribute of a span holds,
    `items` has the items of those that hold an array, in their order."""

    spans: RecordBatch
    resources: RecordBatch
    scopes: RecordBatch
    kinds: Bits
    items: ArrowArray


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """What was read of a chunk of a group; of each span its place in the group and its request, and the places of its
    resource and scope in `read`. `resources` and `scopes` have the places of those in the group."""

    read: ReadSpans
    places: Places
    request_of: Places
    resource_of: Places
    scope_of: Places
    resources: Places
    scopes: Places


def read_spans(spans: Sequence[bytes], resources: Sequence[bytes], scopes: Sequence[bytes]) -> ReadSpans:
    """Read messages, none of them larger than `ITEM_BYTES_MAX`. Raises MalformedMessageError when one is malformed, and
    OtlpDecodeError when values are nested too deeply."""
    span_batch = _read(_spans, Span, spans, _values_of_spans)
    resource_batch = _read(_resources, Resource, resources, _values_of_resources)
    of_attributes, *of_others = _values_of_spans(span_batch)
    items = check_nested(of_attributes.field(_ARRAY).drop_null(), of_attributes.field(_KVLIST).drop_null())
    of_others += _values_of_resources(resource_batch)
    nested = [pa.concat_arrays([each.field(place).drop_null() for each in of_others]) for place in (_ARRAY, _KVLIST)]
    if any(map(len, nested)):
        check_nested(*nested)
    return ReadSpans(
        spans=span_batch,
        resources=resource_batch,
        scopes=_read(_scopes, InstrumentationScope, scopes, lambda _batch: []),
        kinds=kinds(of_attributes),
        items=items,
    )


def _read(
    messages: Any,
    kind: type[Message],
    payloads: Sequence[bytes],
    values_of: Callable[[RecordBatch], list[ArrowArray]],
) -> RecordBatch:
    for payload in payloads:
        check_message(kind, payload)
    batch = record_batch(messages, payloads)
    if any(doubled(kinds(values)).any() for values in values_of(batch)):
        batch = record_batch(messages, [kind.FromString(payload).SerializeToString() for payload in payloads])
    return batch


def _values_of_spans(spans: RecordBatch) -> list[ArrowArray]:
    lists = (spans["attributes"], spans["events"].values.field(2), spans["links"].values.field(3))
    return [each.values.field(1) for each in lists]


def _values_of_resources(resources: RecordBatch) -> list[ArrowArray]:
    return [resources["attributes"].values.field(1)]
