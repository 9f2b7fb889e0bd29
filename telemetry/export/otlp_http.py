"""One OTLP/HTTP protobuf request to a collector, within a deadline, with the answer as a value.

The SDK's own exporters take spans rather than bytes, retry inside the call for up to ten seconds and log each failure;
what waits for delivery is bytes, and retrying is the delivery's business. So the request is made here, with the
standard library: no pool, no proxy, no redirect.
"""

import http.client
import io
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, cast
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from telemetry.client_tls import sidecar_context
from telemetry.export.encoded_spans import EncodedRequest
from telemetry.model.addresses import without_credentials
from telemetry.model.errors import ConfigError

# The collector has read the request and will never take it: sending it again cannot help.
_NEVER_TAKEN: Final = (400, 413, 422)
_MAX_ANSWER_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of one request. `taken`: acknowledged, less `rejected_items`. `refused`: never to be sent again.
    `failed`: keep it and try later. `reason` says why in words."""

    outcome: Literal["taken", "refused", "failed"]
    reason: str = ""
    rejected_items: int = 0


class _DeadlineReader(io.RawIOBase):
    """A socket read under one deadline for the whole answer: a peer that drips bytes cannot stretch it."""

    def __init__(self, sock: socket.socket, deadline_s: float, clock_s: Callable[[], float]) -> None:
        self._sock, self._deadline_s, self._clock_s = sock, deadline_s, clock_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - stub name
        self._sock.settimeout(_remaining(self._deadline_s, self._clock_s))
        return self._sock.recv_into(buffer)


class _DeadlineSocket:
    """The part of a socket that http.client uses, under one deadline."""

    def __init__(self, sock: socket.socket, deadline_s: float, clock_s: Callable[[], float]) -> None:
        self._sock, self._deadline_s, self._clock_s = sock, deadline_s, clock_s

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_remaining(self._deadline_s, self._clock_s))
        self._sock.sendall(data)  # one timeout for the whole of it, by definition of sendall

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode  # always "rb"
        return io.BufferedReader(_DeadlineReader(self._sock, self._deadline_s, self._clock_s))

    def close(self) -> None:
        """http.client closes its socket before the body of a last answer is read; the sender closes the real one."""


def _remaining(deadline_s: float, clock_s: Callable[[], float]) -> float:
    left_s = deadline_s - clock_s()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


class OtlpHttpExporter:
    """Posts export requests to one collector. `endpoint` is its base URL: `/v1/traces` and `/v1/metrics` follow.

    Raises ConfigError for an endpoint that is not an http or https URL, and for files of TLS that cannot be used.
    """

    def __init__(
        self, endpoint: str, token: str | None, *, timeout_s: float = 3.0, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            url = urlsplit(endpoint)
            port = url.port
        except ValueError:
            url, port = urlsplit(""), None
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ConfigError(
                "telemetry endpoint", [f"{without_credentials(endpoint)!r} is no URL like http://127.0.0.1:4318"]
            )
        self.endpoint = endpoint
        self._host = url.hostname
        self._port = port or (443 if url.scheme == "https" else 80)
        self._tls = sidecar_context() if url.scheme == "https" else None
        self._base_path = url.path.rstrip("/")
        self._host_header = url.netloc.rpartition("@")[2]
        self._timeout_s, self._clock_s = timeout_s, clock_s
        self._headers = {"Content-Type": "application/x-protobuf", "User-Agent": "voiceprobe"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def send(self, request: EncodedRequest) -> Delivery:
        """Post one request; never raises for what the network or the collector does."""
        deadline_s = self._clock_s() + self._timeout_s
        try:
            status, answer = self._post(f"{self._base_path}/v1/{request.signal}", request.payload, deadline_s)
        except (OSError, http.client.HTTPException) as error:
            return Delivery("failed", str(error) or type(error).__name__)
        if status == 200:
            return _acknowledgment(request, answer)
        return Delivery("refused" if status in _NEVER_TAKEN else "failed", f"HTTP status {status}")

    def _post(self, path: str, payload: bytes, deadline_s: float) -> tuple[int, bytes]:
        # A connection per request: there are two a second of the usual load, and there is no stale one to retry.
        sock = _connected(self._host, self._port, _remaining(deadline_s, self._clock_s))
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=self._host)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = http.client.HTTPConnection(self._host, self._port)
            connection.sock = cast(socket.socket, _DeadlineSocket(sock, deadline_s, self._clock_s))
            connection.request("POST", path, payload, {**self._headers, "Host": self._host_header})
            response = connection.getresponse()
            return response.status, response.read(_MAX_ANSWER_BYTES)
        finally:
            sock.close()


def _connected(host: str, port: int, timeout_s: float) -> socket.socket:
    # For an address in numbers nothing has to be looked up, which gevent does in a thread.
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect((host, port))
        except BaseException:
            sock.close()
            raise
        return sock
    return socket.create_connection((host, port), timeout_s)


def _acknowledgment(request: EncodedRequest, answer: bytes) -> Delivery:
    try:
        if request.signal == "traces":
            partial = ExportTraceServiceResponse.FromString(answer).partial_success
            rejected = partial.rejected_spans
        else:
            partial = ExportMetricsServiceResponse.FromString(answer).partial_success
            rejected = partial.rejected_data_points
    except DecodeError:
        return Delivery("failed", "the answer is no OTLP response")
    return Delivery("taken", partial.error_message, min(max(0, rejected), request.items))
