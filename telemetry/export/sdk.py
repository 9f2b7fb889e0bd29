"""The OpenTelemetry SDK, set up for processes that must not be disturbed: traces and metrics over OTLP/HTTP protobuf.

Works alike in a plain process, under asyncio and in a process patched by gevent (patch before importing this). A
collector that is dead, slow, half-open or overloaded costs the caller nothing: see `telemetry.export.span_processor`.
"""

import atexit
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Tracer
from opentelemetry.util.types import AttributeValue

from telemetry.client_tls import sidecar_token
from telemetry.export.encoded_spans import EncodedRequest, EncodedSpan, SpanEncoder, encoded_resource
from telemetry.export.otlp_http import OtlpHttpExporter
from telemetry.export.span_log import BATCH_SPANS, SpanLog
from telemetry.export.span_processor import ExportStats, SpoolingSpanProcessor
from telemetry.model import semconv

_logger = logging.getLogger(__name__)

_METRICS_EVERY_MS: Final = 1000.0
# A turn has more fields than the SDK's default of 128 leaves room for in the long run; an environment variable of
# somebody else's must not cut ours.
_MAX_ATTRIBUTES: Final = 512
_MAX_TEXT: Final = 2**20


@dataclass(frozen=True, slots=True)
class SdkOptions:
    """`endpoint`: base URL of the OTLP/HTTP collector (`http://127.0.0.1:4318`), or None. `spool_dir`: where spans
    wait on disk until the collector has taken them, or None. Without both, spans get their ids and are forgotten.
    `token`: sent
    as a bearer token (default: VOICEPROBE_SIDECAR_TOKEN of the environment). `batch`: spans per request.
    `queue`: spans in memory at most. `timeout_s`: for one request, from
    connecting to the end of the answer. A process that forks does best to start afterwards."""

    endpoint: str | None
    service_name: str
    resource: Mapping[str, str | int | float | bool] = field(default_factory=dict[str, str | int | float | bool])
    spool_dir: Path | None = None
    token: str | None = field(default_factory=sidecar_token, repr=False)
    batch: int = BATCH_SPANS
    queue: int = 8192
    timeout_s: float = 3.0


def _new_process_id() -> str:
    # A pid alone is reused, and two hosts share them.
    return f"{os.getpid()}-{secrets.token_hex(8)}"


class ProcessIdentity:
    """A process id unique to this incarnation, and its sequence of turns: from 0, without gaps.

    After a fork the child is another process: it gets its own id and sequence. Thread-safe, also for greenlets.
    """

    def __init__(self, new_id: Callable[[], str] = _new_process_id) -> None:
        self._new_id = new_id
        self._renew()

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._process_id = self._new_id()
        self._sequence = 0
        self._emitted_by_run: dict[str, int] = {}
        self._pid = os.getpid()

    @property
    def process_id(self) -> str:
        """Unique per incarnation of the process."""
        if os.getpid() != self._pid:
            self._renew()
        return self._process_id

    def next_turn(self, run_id: str) -> tuple[str, int]:
        """The process id and the next sequence number; counts the turn for its run."""
        process_id = self.process_id
        with self._lock:
            sequence = self._sequence
            self._sequence += 1
            self._emitted_by_run[run_id] = self._emitted_by_run.get(run_id, 0) + 1
        return process_id, sequence

    def emitted_by_run(self) -> dict[str, int]:
        """Turns emitted so far by run."""
        if os.getpid() != self._pid:
            self._renew()
        with self._lock:
            return dict(self._emitted_by_run)


class UnseededIds(IdGenerator):
    """Trace and span ids from the system's random source. The SDK's own come from `random`, which a load generator
    seeds: every worker and every repeated run would produce the same ids."""

    def generate_span_id(self) -> int:
        """64 random bits, never 0."""
        return int.from_bytes(os.urandom(8), "big") or 1

    def generate_trace_id(self) -> int:
        """128 random bits, never 0."""
        return int.from_bytes(os.urandom(16), "big") or 1

    def is_trace_id_random(self) -> bool:
        """All bits are."""
        return True


class _QueueingMetricExporter(MetricExporter):
    """Passes each report to the delivery thread: one sender, one spool, one view of the collector's health."""

    def __init__(self, processor: SpoolingSpanProcessor) -> None:
        super().__init__()
        self._processor = processor

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        request = encode_metrics(metrics_data)
        points = sum(
            len(getattr(metric, metric.WhichOneof("data") or "gauge").data_points)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        )
        if points:
            self._processor.offer_metrics(EncodedRequest("metrics", points, request.SerializeToString()))
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Do nothing: the processor outlives the reader."""


class _ProcessResource(Resource):
    """The resource of this process. The encoder needs its hash once per span, and the library's own hash writes JSON
    each time."""

    def __init__(self, attributes: Mapping[str, AttributeValue], schema_url: str | None) -> None:
        super().__init__(attributes, schema_url)
        self._hash = super().__hash__()

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    def __hash__(self) -> int:
        return self._hash


def _span_log(options: SdkOptions, identity: ProcessIdentity, resource: bytes) -> SpanLog:
    # Made again after a fork, when the process has another id.
    return SpanLog(options.spool_dir or Path(), identity.process_id, resource, batch=options.batch)


class Telemetry:
    """A running set-up: `tracer` and `meter` to write with, and counts of what was delivered. Created by `start`."""

    def __init__(self, options: SdkOptions) -> None:
        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            _logger.warning("OTEL_SDK_DISABLED is set: no telemetry is recorded")
        self.identity, self._ids = ProcessIdentity(), UnseededIds()
        self.span_encoder = SpanEncoder(semconv.SCOPE)
        spool_dir = options.spool_dir
        sender = (
            OtlpHttpExporter(options.endpoint, options.token, timeout_s=options.timeout_s)
            if options.endpoint is not None
            else None
        )
        described = Resource.create(
            {
                **options.resource,
                "service.name": options.service_name,
                "service.instance.id": self.identity.process_id,
            }
        )
        resource = _ProcessResource(described.attributes, described.schema_url)
        encoded = encoded_resource(resource)
        self._processor = SpoolingSpanProcessor(
            encoded,
            sender,
            partial(_span_log, options, self.identity, encoded) if spool_dir is not None else None,
            batch=options.batch,
            queue=options.queue,
        )
        self._traces = TracerProvider(
            sampler=ALWAYS_ON,  # a remote parent's flag decides about the remote side, not about our figures
            resource=resource,
            shutdown_on_exit=False,
            id_generator=self._ids,
            span_limits=SpanLimits(
                max_span_attributes=_MAX_ATTRIBUTES,
                max_event_attributes=_MAX_ATTRIBUTES,
                max_events=_MAX_ATTRIBUTES,
                max_attribute_length=_MAX_TEXT,
                max_span_attribute_length=_MAX_TEXT,
            ),
        )
        self._traces.add_span_processor(self._processor)
        readers = (
            [
                PeriodicExportingMetricReader(
                    _QueueingMetricExporter(self._processor), export_interval_millis=_METRICS_EVERY_MS
                )
            ]
            if sender is not None or spool_dir is not None
            else []
        )
        self._metrics = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        self.tracer: Tracer = self._traces.get_tracer(semconv.SCOPE)
        self.meter: Meter = self._metrics.get_meter(semconv.SCOPE)
        self.meter.create_observable_gauge(
            semconv.METRIC_TURNS_EMITTED, [self._turns_emitted], unit="{turn}", description="turns emitted so far"
        )
        self._shut = False
        atexit.register(self.shutdown, 2.0)

    def new_span_id(self) -> bytes:
        """An id for a span that is written without the SDK's tracer."""
        return self._ids.generate_span_id().to_bytes(8, "big")

    def write(self, spans: Sequence[EncodedSpan], turns: int) -> None:
        """Queue spans that were encoded without the SDK's tracer, of which `turns` are turns. Never waits."""
        self._processor.offer_spans(spans, turns)

    def _turns_emitted(self, options: CallbackOptions) -> Iterable[Observation]:
        del options
        process_id = self.identity.process_id
        for run_id, turns in self.identity.emitted_by_run().items():
            yield Observation(turns, {"run_id": run_id, "process_id": process_id})

    def flush(self, timeout_s: float) -> bool:
        """Return whether, within the time, everything emitted so far left this process's memory: acknowledged or
        spooled."""
        if self._shut:
            return True
        self._metrics.force_flush(timeout_s * 1e3)
        return self._processor.force_flush(int(timeout_s * 1e3))

    def shutdown(self, timeout_s: float) -> None:
        """Flush, spool the rest, and stop. Afterwards spans are counted as dropped. Idempotent."""
        if self._shut:
            return
        self._shut = True
        atexit.unregister(self.shutdown)
        self._metrics.shutdown(timeout_s * 1e3)
        self._processor.shutdown(timeout_s)

    def export_stats(self) -> ExportStats:
        """Count the spans so far by destination."""
        return self._processor.stats()


def start(options: SdkOptions) -> Telemetry:
    """Set telemetry up for this process. Raises ConfigError for an endpoint that is not a URL, and OSError for a spool
    that cannot be written."""
    return Telemetry(options)
