"""OTLP over gRPC: the generated services, on the same ingest path as HTTP."""

from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from telemetry.model.errors import ConfigError, StoreError
from telemetry.sidecar.messages import Signal
from telemetry.sidecar.otlp.access import is_authorized
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.backlog import RETRY_AFTER_S
from telemetry.sidecar.otlp.body import BODY_BYTES_MAX
from telemetry.sidecar.otlp.http import metrics_response, traces_response
from telemetry.sidecar.otlp.ingest import Ingest, Taken

_STATUS_DETAILS: Final = "grpc-status-details-bin"
_Context = Any  # grpc.aio has no type information


class _Service:
    def __init__(self, ingest: Ingest, token: str | None) -> None:
        self._ingest = ingest
        self._token = token

    async def _authorize(self, context: _Context) -> None:
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        if not is_authorized(metadata.get("authorization"), self._token):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a valid bearer token is required")

    async def _take(self, signal: Signal, body: bytes, context: _Context) -> Taken:
        try:
            return await self._ingest.take(signal, "protobuf", body)
        except OtlpDecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        except StoreError as error:
            retry = Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message=str(error))
            retry.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=RETRY_AFTER_S)))
            context.set_trailing_metadata(((_STATUS_DETAILS, retry.SerializeToString()),))
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise


class TraceService(_Service, trace_service_pb2_grpc.TraceServiceServicer):
    """`opentelemetry.proto.collector.trace.v1.TraceService`."""

    async def Export(  # noqa: N802 - the name that the service defines
        self, request: ExportTraceServiceRequest, context: _Context
    ) -> ExportTraceServiceResponse:
        """Store spans; they are durable when this returns."""
        await self._authorize(context)
        return traces_response(await self._take("traces", request.SerializeToString(), context))


class MetricsService(_Service, metrics_service_pb2_grpc.MetricsServiceServicer):
    """`opentelemetry.proto.collector.metrics.v1.MetricsService`."""

    async def Export(  # noqa: N802 - the name that the service defines
        self, request: ExportMetricsServiceRequest, context: _Context
    ) -> ExportMetricsServiceResponse:
        """Store metric points; they are durable when this returns."""
        await self._authorize(context)
        return metrics_response(await self._take("metrics", request.SerializeToString(), context))


async def start(ingest: Ingest, host: str, port: int, token: str | None) -> tuple[grpc.aio.Server, int]:
    """Start a server; return it and its port (0 requests any free port). Raises ConfigError if the port is in use."""
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", BODY_BYTES_MAX),
            ("grpc.so_reuseport", 0),  # otherwise a second sidecar would silently share the port
        ]
    )
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(TraceService(ingest, token), server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(MetricsService(ingest, token), server)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError:
        bound = 0
    if bound == 0:
        raise ConfigError(
            "--grpc-port",
            [f"cannot listen on {address}; free the port, choose another one, or give 0 for any free port"],
        )
    await server.start()
    return server, bound
