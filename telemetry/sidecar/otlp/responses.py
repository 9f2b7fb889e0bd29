"""The messages that answer an export, the same over HTTP and gRPC."""

from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from telemetry.sidecar.ingest import RETRY_AFTER_S, Taken
from telemetry.sidecar.otlp.body import BODY_BYTES_MAX
from telemetry.sidecar.signals import Signal

TOO_LARGE: Final = f"the body exceeds {BODY_BYTES_MAX >> 20} MiB, compressed or decompressed; send smaller batches"
TOO_MANY_BODIES: Final = "the bodies of requests in progress exceed the memory for them; send it again"
_REJECTED: Final[dict[Signal, str]] = {"traces": "rejected_spans", "metrics": "rejected_data_points"}


def success(signal: Signal, taken: Taken) -> Message:
    """Create the response to an export that was stored, with the number of rejected items. Without rejected items, a
    sentence is a warning, as OTLP defines it: an item was stored incompletely."""
    answer = ExportTraceServiceResponse() if signal == "traces" else ExportMetricsServiceResponse()
    if taken.rejected or taken.reasons:
        answer.partial_success.error_message = "; ".join(taken.reasons)
        setattr(answer.partial_success, _REJECTED[signal], taken.rejected)
    return answer


def retryable(message: str) -> Status:
    """Create the status of an export that is to be sent again."""
    status = Status(code=Code.UNAVAILABLE, message=message)
    status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=RETRY_AFTER_S)))
    return status
