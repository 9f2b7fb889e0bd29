"""How many turns a spooled record holds: its `voice.turn` spans, beside those of stages and calls."""

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from telemetry.export.spool import SpoolRecord
from telemetry.model import semconv


def turns_in(record: SpoolRecord) -> int:
    """The turns of a record; 0 for metrics, and for a payload that cannot be read (its receiver will reject it)."""
    if record.signal != "traces":
        return 0
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(record.payload)
    except DecodeError:
        return 0
    return sum(
        span.name == semconv.SPAN_TURN
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    )
