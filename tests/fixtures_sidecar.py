"""A real sidecar process for tests, and OTLP requests to send to it."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue

from telemetry.model import semconv
from telemetry.model.semconv import SIDECAR_TOKEN_VARIABLE
from telemetry.model.turn_spans import SpanRow, turn_attributes
from telemetry.model.turns import Turn
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.json_requests import metrics_from_json, traces_from_json
from telemetry.sidecar.otlp.opening import Cleaner
from telemetry.sidecar.otlp.tables import DecodedTables, read_request, tables_of
from telemetry.store.reader import StoreReader
from telemetry.store.schema import PointRow, span_from_row

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class SidecarProcess:
    """A running sidecar: its addresses and its process."""

    process: subprocess.Popen[str]
    http: str
    grpc: str

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=60)

    def kill_all(self) -> None:
        """kill -9 of every process of it, one right after the other; children may be in groups of their own."""
        front = psutil.Process(self.process.pid)
        for process in (front, *front.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(timeout=60)

    def terminate(self) -> int:
        """SIGTERM; gives the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@contextmanager
def disk_that_takes_nothing(sidecar: SidecarProcess) -> Iterator[None]:
    """No file of a sidecar grows meanwhile: as on a full disk, whatever it writes is refused by the system."""
    process = psutil.Process(sidecar.process.pid)
    before = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_FSIZE, before)


def sidecar_command(store: Path, *arguments: str, checkout: Path = ROOT) -> list[str]:
    python = sys.executable if checkout == ROOT else str(checkout / ".venv" / "bin" / "python")
    return [python, "-m", "telemetry.sidecar", "--store", str(store), *arguments]


@contextmanager
def running_sidecar(
    store: Path,
    *arguments: str,
    before: Path | None = None,
    descriptors: int | None = None,
    token: str | None = None,
    variables: Mapping[str, str] | None = None,
    stderr: int | None = None,
    checkout: Path = ROOT,
) -> Iterator[SidecarProcess]:
    """A sidecar on free ports, ready to receive; killed by its pid at the end if it still runs.

    `before` is a folder that its Python looks into first, `descriptors` limits how many descriptors it may open,
    `token` is the one that it asks for, `variables` are added to its environment, `stderr` is where its messages go,
    `checkout` is whose code runs, in that checkout's environment.
    """
    limit = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"] if descriptors is not None else []
    path = os.pathsep.join(str(folder) for folder in (before, checkout) if folder is not None)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **(variables or {})}
    if token is not None:
        environment[SIDECAR_TOKEN_VARIABLE] = token
    process = subprocess.Popen(
        [*limit, *sidecar_command(store, "--http-port", "0", "--grpc-port", "0", *arguments, checkout=checkout)],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment,
        cwd=checkout,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, f"the sidecar ended with {process.wait(timeout=60)} before it was ready"
        ready = json.loads(line)
        assert ready["ready"] is True
        yield SidecarProcess(process, ready["http"], ready["grpc"])
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=60)
        process.stdout.close()


def any_value(value: object) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, (tuple, list)):
        return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
    return AnyValue(string_value=str(value))


def turns_request(turns: Iterable[Turn], service: str = "voiceprobe") -> ExportTraceServiceRequest:
    """An export of `voice.turn` spans, as an exporter would send it."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(KeyValue(key="service.name", value=any_value(service)))
    scope = resource.scope_spans.add()
    scope.scope.name = semconv.SCOPE
    for turn in turns:
        span = scope.spans.add()
        span.trace_id, span.span_id = bytes.fromhex(turn.trace_id), bytes.fromhex(turn.span_id)
        span.name = semconv.SPAN_TURN
        span.start_time_unix_nano = max(0, turn.started_unix_ns)
        span.end_time_unix_nano = max(0, turn.started_unix_ns) + 1_000_000
        for key, value in turn_attributes(turn).items():
            span.attributes.append(KeyValue(key=key, value=any_value(value)))
    return request


def json_value(value: object) -> dict[str, object]:
    """An attribute's value in OTLP/JSON."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, (tuple, list)):
        return {"arrayValue": {"values": [json_value(item) for item in value]}}
    return {"stringValue": str(value)}


def turns_json(turns: Iterable[Turn], service: str = "voiceprobe") -> bytes:
    """Encode turns as `turns_request` does, in OTLP/JSON: ids are hex, 64-bit integers are text."""
    spans = [
        {
            "traceId": turn.trace_id.upper(),
            "spanId": turn.span_id,
            "name": semconv.SPAN_TURN,
            "startTimeUnixNano": str(max(0, turn.started_unix_ns)),
            "endTimeUnixNano": str(max(0, turn.started_unix_ns) + 1_000_000),
            "attributes": [{"key": key, "value": json_value(v)} for key, v in turn_attributes(turn).items()],
        }
        for turn in turns
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    scope_spans = {"scope": {"name": semconv.SCOPE}, "spans": spans}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope_spans]}]}).encode()


@dataclass
class DecodedRows:
    """The rows of one request, as values."""

    turns: list[Turn]
    spans: list[SpanRow]
    points: list[PointRow]
    received: int
    rejected: int
    reasons: list[str]
    unmapped: Counter[str]
    unknown_turn_fields: Counter[str]

    @property
    def rows(self) -> int:
        return len(self.turns) + len(self.spans) + len(self.points)


def decode_traces(bodies: Sequence[bytes], cleaner: Cleaner | None = None) -> DecodedTables:
    """Decode trace exports in protobuf."""
    return tables_of([read_request(body, "traces", cleaner) for body in bodies])


def decode_metrics(bodies: Sequence[bytes], cleaner: Cleaner | None = None) -> DecodedTables:
    """Decode metrics exports in protobuf."""
    return tables_of([read_request(body, "metrics", cleaner) for body in bodies])


def decoded_traces(body: bytes, encoding: Literal["protobuf", "json"] = "protobuf") -> DecodedRows:
    """Decode one trace export. Raises OtlpDecodeError if it is invalid."""
    return _rows(decode_traces([traces_from_json(body) if encoding == "json" else body]))


def decoded_metrics(body: bytes, encoding: Literal["protobuf", "json"] = "protobuf") -> DecodedRows:
    """Decode one metrics export. Raises OtlpDecodeError if it is invalid."""
    return _rows(decode_metrics([metrics_from_json(body) if encoding == "json" else body]))


def _rows(tables: DecodedTables) -> DecodedRows:
    (request,) = tables.requests
    if request.fault is not None:
        assert (tables.turns, tables.spans.num_rows, tables.points.num_rows) == ([], 0, 0)
        raise OtlpDecodeError(request.fault)
    return DecodedRows(
        turns=tables.turns,
        spans=[span_from_row(row) for row in tables.spans.to_pylist()],
        points=[
            PointRow(row["name"], row["unix_ns"], row["value"], json.loads(row["attributes"]), row["service"])
            for row in tables.points.to_pylist()
        ],
        received=request.received,
        rejected=request.rejected,
        reasons=request.reasons,
        unmapped=tables.unmapped,
        unknown_turn_fields=tables.unknown_turn_fields,
    )


def trace_id_of(index: int, sender: int = 0) -> str:
    """The trace of one of the turns of a sender, of which there may be several."""
    return f"{sender + 1:016x}{index + 1:016x}"


def stored_trace_ids(store: Path) -> list[str]:
    """The traces of all turns of a store."""
    with StoreReader(store) as reader:
        return [turn.trace_id for turn in reader.turns(limit=1_000_000)]
