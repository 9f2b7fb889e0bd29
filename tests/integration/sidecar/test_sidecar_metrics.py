"""OpenTelemetry's own SDK and exporters send metrics to a real sidecar; what is stored is what it recorded."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetricExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import (
    AlwaysOnExemplarFilter,
    Counter,
    Histogram,
    MeterProvider,
)
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from telemetry.store.connection import StoreConnection, rows
from telemetry.store.database import read_only
from tests.fixtures_sidecar import SidecarProcess, running_sidecar

LATENCIES = [0.004, 0.3, 0.3, 0.7, 0.75, 3.0, 12.0]
BOUNDS = (0.25, 0.5, 1.0, 5.0)
TRACE_ID, SPAN_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
DELTA = dict.fromkeys((Counter, Histogram), AggregationTemporality.DELTA)
EXPORTERS: dict[str, Callable[[SidecarProcess], MetricExporter]] = {
    "grpc": lambda sidecar: GrpcMetricExporter(sidecar.grpc, insecure=True, preferred_temporality=DELTA),
    "http": lambda sidecar: HttpMetricExporter(
        f"{sidecar.http}/v1/metrics/", compression=Compression.Gzip, preferred_temporality=DELTA
    ),
    "cumulative": lambda sidecar: GrpcMetricExporter(sidecar.grpc, insecure=True),
}


def _observed(_options: CallbackOptions) -> Iterator[Observation]:
    yield Observation(3, {"phase": "steady"})


def _send(exporter: MetricExporter, service: str) -> None:
    """Record with the SDK: a histogram, an exponential one, a counter, a gauge and an observed sum."""
    views = [
        View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation(max_size=20)),
    ]
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider(
        [reader],
        Resource({"service.name": service}),
        exemplar_filter=AlwaysOnExemplarFilter(),
        shutdown_on_exit=False,
        views=views,
    )
    meter = provider.get_meter("bot")
    explicit = meter.create_histogram("explicit", "s", explicit_bucket_boundaries_advisory=BOUNDS)
    exponential = meter.create_histogram("exponential", "s")
    context = SpanContext(TRACE_ID, SPAN_ID, is_remote=False, trace_flags=TraceFlags(1))
    with trace.use_span(NonRecordingSpan(context)):
        for value in LATENCIES:
            explicit.record(value, {"phase": "steady"})
            exponential.record(value)
        exponential.record(0)
    meter.create_counter("turns", "{turn}").add(7)
    meter.create_up_down_counter("calls").add(-2)
    meter.create_observable_up_down_counter("queue", [_observed])
    meter.create_gauge("ratio", "1").set(0.25)
    provider.shutdown()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, Any]]]:
    """The rows that a sidecar stored of each exporter, by the name of the metric."""
    directory = tmp_path_factory.mktemp("metrics") / "store"
    with running_sidecar(directory) as sidecar:
        for name, exporter in EXPORTERS.items():
            _send(exporter(sidecar), name)
        assert sidecar.terminate() == 0
    with read_only(directory) as database, database.snapshot() as cursor:
        points = rows(StoreConnection(cursor, directory), "SELECT * FROM points")
    return {name: {row["name"]: row for row in points if row["service"] == name} for name in EXPORTERS}


def _summed_up(row: dict[str, Any]) -> tuple[int, float, float, float]:
    return row["count"], row["sum"], row["min"], row["max"]


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_histogram_of_the_sdk(stored: dict[str, dict[str, dict[str, Any]]], exporter: str) -> None:
    row = stored[exporter]["explicit"]
    assert (row["kind"], row["unit"], row["scope_name"], row["attributes"]) == (
        "histogram",
        "s",
        "bot",
        '{"phase":"steady"}',
    )
    assert row["temporality"] == ("cumulative" if exporter == "cumulative" else "delta")
    assert _summed_up(row) == (7, pytest.approx(sum(LATENCIES)), 0.004, 12.0)
    assert row["explicit_bounds"] == list(BOUNDS)
    edges = [-math.inf, *BOUNDS, math.inf]
    expected = [sum(low < value <= high for value in LATENCIES) for low, high in pairwise(edges)]
    assert row["bucket_counts"] == expected
    assert 0 < row["start_unix_ns"] <= row["unix_ns"]
    assert {(exemplar["trace_id"], exemplar["span_id"]) for exemplar in row["exemplars"]} == {
        (f"{TRACE_ID:032x}", f"{SPAN_ID:016x}")
    }
    assert {exemplar["value"] for exemplar in row["exemplars"]} <= set(LATENCIES)


def _bucket_of(value: float, scale: int) -> int:
    """The index of the bucket (base^index, base^(index+1)] of OTLP's definition."""
    return math.ceil(math.log2(value) * 2.0**scale) - 1


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_an_exponential_histogram_of_the_sdk(stored: dict[str, dict[str, dict[str, Any]]], exporter: str) -> None:
    row = stored[exporter]["exponential"]
    assert (row["kind"], row["zero_count"], sum(row["negative_bucket_counts"])) == ("exponential_histogram", 1, 0)
    assert _summed_up(row) == (8, pytest.approx(sum(LATENCIES)), 0.0, 12.0)
    expected: dict[int, int] = {}
    for value in LATENCIES:
        index = _bucket_of(value, row["scale"])
        expected[index] = expected.get(index, 0) + 1
    counts: Sequence[int] = row["positive_bucket_counts"]
    assert {row["positive_offset"] + at: count for at, count in enumerate(counts) if count} == expected
    assert len(counts) <= 20


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_numbers_of_the_sdk(stored: dict[str, dict[str, dict[str, Any]]], exporter: str) -> None:
    points = stored[exporter]
    names = ("turns", "calls", "queue", "ratio")
    assert [points[name]["value"] for name in names] == [7.0, -2.0, 3.0, 0.25]
    assert [points[name]["kind"] for name in names] == ["sum", "sum", "sum", "gauge"]
    assert [points[name]["is_monotonic"] for name in names] == [True, False, False, None]
    first = "cumulative" if exporter == "cumulative" else "delta"
    assert [points[name]["temporality"] for name in names] == [first, "cumulative", "cumulative", None]
