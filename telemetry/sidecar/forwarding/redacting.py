"""Leaves texts out of an export request before it is sent to a destination that texts are redacted for.

The rules are those of `telemetry.store.redaction`. They are applied when a request is sent, whatever the ingest log
holds: it has texts as they came where the store keeps them.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from telemetry.sidecar.signals import Signal
from telemetry.store.redaction import is_label

_POINTS: Final = ("gauge", "sum", "histogram", "exponential_histogram", "summary")


def redact_request(body: bytes, signal: Signal) -> bytes:
    """The request without texts. Raises google.protobuf.message.DecodeError for one that cannot be read."""
    request = _MESSAGES[signal].FromString(body)
    # What this version does not know may hold anything.
    request.DiscardUnknownFields()
    for attributes in _ATTRIBUTES[signal](request):
        kept = [entry for entry in attributes if _is_label(entry.key) or not _holds_text(entry.value)]
        if len(kept) < len(attributes):
            del attributes[:]
            attributes.extend(kept)
    return request.SerializeToString()


# The same names come again and again, and who sends others makes room for them.
_is_label = lru_cache(maxsize=4096)(is_label)


def _holds_text(value: AnyValue) -> bool:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return any(map(_holds_text, value.array_value.values))
    if kind == "kvlist_value":
        return bool(value.kvlist_value.values)  # its keys are text
    return kind in ("string_value", "bytes_value")


def _of_traces(request: Any) -> Iterator[Any]:
    """Every list of attributes; the message of a status is free text, and is removed on the way."""
    for resource in request.resource_spans:
        yield resource.resource.attributes
        for scope in resource.scope_spans:
            yield scope.scope.attributes
            for span in scope.spans:
                if span.status.message:
                    span.status.message = ""
                yield span.attributes
                yield from (event.attributes for event in span.events)
                yield from (link.attributes for link in span.links)


def _of_metrics(request: Any) -> Iterator[Any]:
    for resource in request.resource_metrics:
        yield resource.resource.attributes
        for scope in resource.scope_metrics:
            yield scope.scope.attributes
            for metric in scope.metrics:
                yield metric.metadata
                for kind in _POINTS:
                    for point in getattr(metric, kind).data_points:
                        yield point.attributes
                        if kind != "summary":
                            yield from (exemplar.filtered_attributes for exemplar in point.exemplars)


_MESSAGES: Final[dict[Signal, type[Message]]] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
_ATTRIBUTES: Final[dict[Signal, Callable[[Any], Iterator[Any]]]] = {"traces": _of_traces, "metrics": _of_metrics}
