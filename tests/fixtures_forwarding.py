"""A sidecar that forwards, and upstream servers of every mood that know nothing of our code."""

import gzip
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.fixtures_sidecar import ROOT, SidecarProcess, any_value

_PROGRAM = """
import json, sys
from pathlib import Path
from telemetry.sidecar.app import run
from telemetry.sidecar.forwarding.destinations import destinations_from
from telemetry.sidecar.settings import SidecarOptions
store, tables, options = sys.argv[1:]
destinations = tuple(destinations_from(json.loads(tables), "test"))
options = SidecarOptions(store=Path(store), http_port=0, grpc_port=0, destinations=destinations, **json.loads(options))
raise SystemExit(run(options))
"""


@contextmanager
def forwarding_sidecar(
    store: Path, tables: Sequence[dict[str, Any]], *, log: Path | None = None, **options: Any
) -> Generator[SidecarProcess]:
    """A sidecar with `[[forward]]` tables; what it writes to stderr goes to `log`."""
    command = [sys.executable, "-c", _PROGRAM, str(store), json.dumps(list(tables)), json.dumps(options)]
    with log.open("ab") if log is not None else open(os.devnull, "wb") as stderr:  # noqa: PTH123 - either is a file
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment, cwd=ROOT)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, f"the sidecar ended with {process.wait(timeout=60)} before it was ready"
            ready = json.loads(line)
            yield SidecarProcess(process, ready["http"], ready["grpc"])
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(timeout=60)
            process.stdout.close()


Mood = Callable[["UpstreamServer", BaseHTTPRequestHandler, bytes], None]


class UpstreamServer:
    """A real OTLP/HTTP server that keeps what it acknowledged and all that it read; `mood` is how it answers."""

    def __init__(self, mood: Mood | None = None, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        server = self
        self.mood: Mood = mood or take
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.read: list[bytes] = []
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                server.paths.append(self.path)
                server.headers.append({name.lower(): value for name, value in self.headers.items()})
                server.read.append(body)
                with suppress(OSError):
                    server.mood(server, self, body)

            def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the base's name
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.port: int = self._server.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"

    def span_ids(self) -> list[str]:
        """The spans acknowledged, with those that came twice twice."""
        return [span.span_id.hex() for span in self.spans()]

    def spans(self) -> list[Any]:
        return [
            span
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def reply(handler: BaseHTTPRequestHandler, status: int, content: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    handler.send_header("content-type", "application/x-protobuf")
    handler.send_header("content-length", str(len(content)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(content)


def take(server: UpstreamServer, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """Acknowledge."""
    if handler.path.endswith("/v1/traces"):
        server.traces.append(ExportTraceServiceRequest.FromString(body))
    else:
        server.metrics.append(ExportMetricsServiceRequest.FromString(body))
    reply(handler, 200)


def take_partly(server: UpstreamServer, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """Acknowledge all but two spans of each request."""
    server.traces.append(ExportTraceServiceRequest.FromString(body))
    partial = ExportTracePartialSuccess(rejected_spans=2, error_message="too old")
    reply(handler, 200, ExportTraceServiceResponse(partial_success=partial).SerializeToString())


def answer(status: int, content: bytes = b"", **headers: str) -> Mood:
    """Answer every request with a status."""
    return lambda _server, handler, _body: reply(handler, status, content, **headers)


def endless_body(_server: UpstreamServer, handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    """Acknowledge with a body that does not end."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * 65536)


class BlackHole:
    """Accepts connections in its backlog alone: it never reads and never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        self._socket.close()


def dead_url() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def spans_request(first_span: int, count: int = 1, attributes: Mapping[str, object] = MappingProxyType({})) -> bytes:
    """A request of spans that are numbered by their ids."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.scope.name = "test"
    for number in range(first_span, first_span + count):
        span = scope.spans.add()
        span.trace_id = (number + 1).to_bytes(16, "big")
        span.span_id = (number + 1).to_bytes(8, "big")
        span.name = "work"
        span.start_time_unix_nano = 1_700_000_000_000_000_000
        span.end_time_unix_nano = span.start_time_unix_nano + 1
        for key, value in attributes.items():
            span.attributes.add(key=key, value=any_value(value))
    return request.SerializeToString()


def span_id(number: int) -> str:
    """The id of a span of `spans_request`."""
    return f"{number + 1:016x}"
