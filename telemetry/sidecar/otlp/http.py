"""OTLP over HTTP, compatible with the OpenTelemetry Collector; `decode` and `ingest` do the actual work."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from telemetry.model.errors import StoreError
from telemetry.sidecar.messages import Encoding, Signal
from telemetry.sidecar.otlp.access import is_authorized
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.backlog import RETRY_AFTER_S
from telemetry.sidecar.otlp.body import BODY_BYTES_MAX, BodyDamaged, BodyTooLarge, decompress, read_limited
from telemetry.sidecar.otlp.ingest import Ingest, Taken

_ENCODINGS: Final[dict[str, Encoding]] = {"application/x-protobuf": "protobuf", "application/json": "json"}
_CONTENT_TYPES: Final[dict[Encoding, str]] = {"protobuf": "application/x-protobuf", "json": "application/json"}
_UNPACKED: Final = ("", "identity")
_PACKED: Final = ("gzip", "deflate")


class _Refusal(Exception):  # noqa: N818 - a response, not an internal error
    """A response other than 200 to a request that was not taken."""

    def __init__(self, status: int, code: Code.ValueType, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
        self.body = Status(code=code, message=message)


def routes(ingest: Ingest, token: str | None) -> list[Route]:
    """Create the routes `/v1/traces` and `/v1/metrics`; methods other than POST are answered with 405."""
    return [
        Route("/v1/traces", _endpoint(ingest, token, "traces", traces_response), methods=["POST"]),
        Route("/v1/metrics", _endpoint(ingest, token, "metrics", metrics_response), methods=["POST"]),
    ]


def traces_response(taken: Taken) -> ExportTraceServiceResponse:
    """Create the response to a trace export, with the number of rejected spans."""
    response = ExportTraceServiceResponse()
    if taken.rejected:
        response.partial_success.rejected_spans = taken.rejected
        response.partial_success.error_message = "; ".join(taken.reasons)
    return response


def metrics_response(taken: Taken) -> ExportMetricsServiceResponse:
    """Create the response to a metrics export, with the number of rejected points."""
    response = ExportMetricsServiceResponse()
    if taken.rejected:
        response.partial_success.rejected_data_points = taken.rejected
        response.partial_success.error_message = "; ".join(taken.reasons)
    return response


def _endpoint(
    ingest: Ingest,
    token: str | None,
    signal: Signal,
    respond: Callable[[Taken], Message],
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = _ENCODINGS.get(media_type)
        try:
            body = await _body(request, media_type, token)
            taken = await ingest.take(signal, encoding or "json", body)
            return _response(200, respond(taken), encoding)
        except OtlpDecodeError as error:
            return _response(400, Status(code=Code.INVALID_ARGUMENT, message=str(error)), encoding)
        except StoreError as error:
            status = Status(code=Code.UNAVAILABLE, message=str(error))
            return _response(503, status, encoding, {"retry-after": str(RETRY_AFTER_S)})
        except _Refusal as refusal:
            ingest.bad_request()
            return _response(refusal.status, refusal.body, encoding, refusal.headers)
        except ClientDisconnect:
            ingest.bad_request()
            return Response(status_code=400)  # the client is gone

    return endpoint


async def _body(request: Request, media_type: str, token: str | None) -> bytes:
    """Return a request's decompressed body. Raises _Refusal for an unauthorized or unsupported request."""
    if not is_authorized(request.headers.get("authorization"), token):
        raise _Refusal(401, Code.UNAUTHENTICATED, "a valid bearer token is required", {"www-authenticate": "Bearer"})
    if media_type not in _ENCODINGS:
        known = " or ".join(_ENCODINGS)
        raise _Refusal(415, Code.INVALID_ARGUMENT, f"content type {media_type!r}: send {known}")
    packing = request.headers.get("content-encoding", "").strip().lower()
    if packing not in _UNPACKED and packing not in _PACKED:
        raise _Refusal(415, Code.INVALID_ARGUMENT, f"content encoding {packing!r}: send gzip, deflate or none")
    too_large = _Refusal(
        413,
        Code.RESOURCE_EXHAUSTED,
        f"the body exceeds {BODY_BYTES_MAX >> 20} MiB, compressed or decompressed; send smaller batches",
    )
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > BODY_BYTES_MAX:
        raise too_large
    try:
        body = await read_limited(request.stream())
        return body if packing in _UNPACKED else await asyncio.to_thread(decompress, body)
    except BodyTooLarge:
        raise too_large from None
    except BodyDamaged as error:
        raise _Refusal(400, Code.INVALID_ARGUMENT, f"the body is not valid {packing} data ({error})") from error


def _response(
    status: int, message: Message, encoding: Encoding | None, headers: dict[str, str] | None = None
) -> Response:
    # A request in an unknown encoding is answered in JSON.
    encoding = encoding or "json"
    content = message.SerializeToString() if encoding == "protobuf" else MessageToJson(message, indent=None)
    return Response(content, status_code=status, media_type=_CONTENT_TYPES[encoding], headers=headers)
