"""OTLP over gRPC: the services of the Collector, on the same ingest path as HTTP.

Messages stay bytes, and gRPC does not decompress them: it would do so in the event loop and without a limit on memory.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, NoReturn, cast

import grpc
import grpc.aio
from google.rpc.status_pb2 import Status
from grpc._cython import cygrpc

from telemetry.model.addresses import host_and_port
from telemetry.model.errors import ConfigError, StoreError
from telemetry.sidecar.ingest import Ingest
from telemetry.sidecar.limits import BodyLease, BudgetExhausted, ConnectionLimits
from telemetry.sidecar.otlp.access import UNAUTHORIZED, Access, is_authorized
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.body import BODY_BYTES_MAX, Bodies, BodyDamaged, BodyTooLarge
from telemetry.sidecar.otlp.grpc_health import CHECK, WATCH, GrpcHealth
from telemetry.sidecar.otlp.receive_slots import NoSlot, ReceiveSlots
from telemetry.sidecar.otlp.responses import TOO_LARGE, TOO_MANY_BODIES, retryable, success
from telemetry.sidecar.signals import Signal

_METHODS: Final[dict[str, Signal]] = {
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": "traces",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": "metrics",
}
# What senders may try in addition to these; they retry a call that is canceled, but not one that is not implemented.
_UNIMPLEMENTED: Final = (
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
    "/grpc.health.v1.Health/List",
)
SERVICES: Final = frozenset(method[1:].rpartition("/")[0] for method in _METHODS)
_STATUS_DETAILS: Final = "grpc-status-details-bin"
STREAMS_PER_CONNECTION: Final = 64
_METADATA_BYTES_MAX: Final = 16 << 10
_GZIP_MAGIC: Final = b"\x1f\x8b"
_Context = Any  # grpc.aio has no type information
# The public class only forwards calls to this one, and cannot be given another.
_AioServer: Any = cygrpc.AioServer
_NO_MESSAGE: Final[object] = cast(Any, grpc.aio).EOF


def compression_of(message: bytes) -> list[str]:
    """Return how a message is compressed: gzip, zlib (which gRPC calls deflate) or not at all.

    The first bytes decide: gRPC does not pass its flag on, and no export message starts with these.
    """
    if message.startswith(_GZIP_MAGIC):
        return ["gzip"]
    if len(message) >= 2 and message[0] == 0x78 and int.from_bytes(message[:2], "big") % 31 == 0:
        return ["zlib"]
    return []


class RegisteredMethodsServer(_AioServer):
    """grpc.aio's server, which cancels calls of methods that are not registered.

    On its own it would decode their names, and end at the first name that is not UTF-8.
    """

    async def _request_call(self) -> NoReturn:
        """Cancel every call that reaches this method: none of them is of a registered method."""
        while True:
            call = await super()._request_call()
            del call  # which cancels it


class _Export:
    """The method `Export` of one of the services."""

    def __init__(self, signal: Signal, ingest: Ingest, bodies: Bodies, slots: ReceiveSlots, token: str | None) -> None:
        self._signal: Signal = signal
        self._ingest = ingest
        self._bodies = bodies
        self._slots = slots
        self._token = token

    async def answer(self, _messages: AsyncIterator[bytes], context: _Context) -> bytes:
        """Store an export; it is durable when this returns."""
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        if not is_authorized(metadata.get("authorization"), self._token):
            self._ingest.bad_request()
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNAUTHORIZED)
        try:
            with self._bodies.budget.lease() as lease:
                body = await self._message(context, lease)
                taken = await self._ingest.take(self._signal, "protobuf", body)
            return success(self._signal, taken).SerializeToString()
        except OtlpDecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except (BudgetExhausted, NoSlot):
            self._ingest.refused_request()
            await _abort_retryable(context, retryable(TOO_MANY_BODIES))
        except StoreError as error:
            await _abort_retryable(context, retryable(str(error)))
        except TimeoutError:
            self._ingest.bad_request()
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the message did not arrive in time")
        except BodyTooLarge:
            self._ingest.bad_request()
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_LARGE)
        except BodyDamaged as error:
            self._ingest.bad_request()
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the message cannot be decompressed ({error})")
        raise AssertionError("abort raises")

    async def _message(self, context: _Context, lease: BodyLease) -> bytes:
        """Receive the message and decompress it."""
        received = await self._slots.receive(context.read)
        if received is _NO_MESSAGE:
            self._ingest.bad_request()
            raise OtlpDecodeError("the call ended before a whole message arrived")
        message = cast(bytes, received)
        lease.grow(len(message))
        return await self._bodies.decompress(message, compression_of(message), lease)


async def _abort_retryable(context: _Context, status: Status) -> None:
    context.set_trailing_metadata(((_STATUS_DETAILS, status.SerializeToString()),))
    await context.abort(grpc.StatusCode.UNAVAILABLE, status.message)


def _options(limits: ConnectionLimits) -> list[tuple[str, int]]:
    header_ms, idle_ms = int(limits.header_s * 1000), int(limits.idle_s * 1000)
    return [
        ("grpc.so_reuseport", 0),  # otherwise a second sidecar would silently share the port
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", header_ms),
        ("grpc.http2.settings_timeout", header_ms),
        ("grpc.max_connection_idle_ms", idle_ms),
        ("grpc.keepalive_time_ms", idle_ms),  # detects clients that disappeared
        ("grpc.keepalive_timeout_ms", header_ms),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES_MAX),
        ("grpc.max_receive_message_length", BODY_BYTES_MAX),
        ("grpc.per_message_decompression", 0),
        ("grpc.http2.bdp_probe", 0),  # it widens the window of what is kept for calls that are not read yet
    ]


async def _unimplemented(_messages: AsyncIterator[bytes], context: _Context) -> bytes:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this sidecar takes traces and metrics")
    raise AssertionError("abort raises")


async def start(
    ingest: Ingest,
    bodies: Bodies,
    host: str,
    port: int,
    access: Access,
    *,
    health: GrpcHealth,
    credentials: grpc.ServerCredentials | None = None,
) -> tuple["RegisteredMethodsServer", int]:
    """Start a server; return it and its port (0 requests any free port). Raises ConfigError if the port is in use.

    With `credentials` it speaks TLS only; they say whether a client needs a certificate.
    """
    server = RegisteredMethodsServer(asyncio.get_running_loop(), None, (), (), _options(bodies.limits), None)
    slots = ReceiveSlots(bodies.limits.body_s)
    answers = dict.fromkeys(_UNIMPLEMENTED, _unimplemented)
    answers |= {
        method: _Export(signal, ingest, bodies, slots, access.token).answer for method, signal in _METHODS.items()
    }
    answers[CHECK] = health.check
    # A call with a stream of requests reaches its handler before its message does.
    handlers = {method: grpc.stream_unary_rpc_method_handler(answer) for method, answer in answers.items()}
    handlers[WATCH] = grpc.stream_stream_rpc_method_handler(health.watch)
    server.add_registered_method_handlers(handlers)
    address = host_and_port(host, port)
    try:
        bound = (
            server.add_insecure_port(address.encode())
            if credentials is None
            else server.add_secure_port(address.encode(), credentials)
        )
    except RuntimeError:
        bound = 0
    if bound == 0:
        raise ConfigError(
            "--grpc-port",
            [f"cannot listen on {address}; free the port, choose another one, or give 0 for any free port"],
        )
    await server.start()
    return server, bound
