"""Conversion of a Prometheus page to OTLP metrics: the series of a model server that say why turns were slow. Pure.

Only the families named here are taken, and of their labels only the model and the number of the engine: a page may hold
anything. vLLM's prefix cache counts tokens, not requests, so its ratio is kept apart from those of turns.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ScopeMetrics,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from telemetry.model.foreign_text import one_line
from telemetry.model.semconv import GEN_AI_REQUEST_MODEL, SCRAPE_ENGINE, SCRAPE_SCOPE, SCRAPE_UP

# Family -> unit in UCUM. The names are vLLM's, of its first engine (gpu_…) and its present one.
UNITS: Final[dict[str, str]] = {
    "vllm:prefix_cache_queries": "{token}",
    "vllm:prefix_cache_hits": "{token}",
    "vllm:gpu_prefix_cache_queries": "{token}",
    "vllm:gpu_prefix_cache_hits": "{token}",
    "vllm:request_queue_time_seconds": "s",
    "vllm:time_to_first_token_seconds": "s",
    "vllm:num_requests_running": "{request}",
    "vllm:num_requests_waiting": "{request}",
    "vllm:kv_cache_usage_perc": "1",
    "vllm:gpu_cache_usage_perc": "1",
}
SERIES_MAX: Final = 1000
BUCKETS_MAX: Final = 200
_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _When:
    """The time at which a page was read, and the start of each series of a family, where the page says so."""

    unix_ns: int
    began: dict[_Labels, int]


class NotAPage(ValueError):  # noqa: N818 - reads as what it is
    """Raised for a text that is not a Prometheus page, or holds more than is taken; the text says why."""


def scraped(text: str, name: str, unix_ns: int) -> bytes:
    """An export request with the known series of a page that was read at `unix_ns` of our wall clock. Raises
    NotAPage."""
    request, scope = _request(name)
    try:
        families = list(text_string_to_metric_families(text))
    except (ValueError, KeyError, IndexError) as error:
        raise NotAPage(f"the page is not in Prometheus' text format ({one_line(str(error))})") from error
    series = 0
    began = _began(families)
    for family in families:
        if family.name in UNITS and family.type in _FILLED:
            metric = scope.metrics.add(name=family.name, unit=UNITS[family.name])
            series += _FILLED[family.type](metric, family, _When(unix_ns, began.get(family.name, {})))
        if series > SERIES_MAX:
            raise NotAPage(f"the page has more than {SERIES_MAX} of the series that are read")
    scope.metrics.append(_up(1, unix_ns))
    return request.SerializeToString()


def failed(name: str, unix_ns: int) -> bytes:
    """An export request that says that a page could not be read."""
    request, scope = _request(name)
    scope.metrics.append(_up(0, unix_ns))
    return request.SerializeToString()


def _request(name: str) -> tuple[ExportMetricsServiceRequest, ScopeMetrics]:
    request = ExportMetricsServiceRequest()
    of_resource = request.resource_metrics.add()
    of_resource.resource.attributes.append(KeyValue(key="service.name", value=AnyValue(string_value=name)))
    scope = of_resource.scope_metrics.add()
    scope.scope.name = SCRAPE_SCOPE
    return request, scope


def _up(value: int, unix_ns: int) -> Metric:
    metric = Metric(name=SCRAPE_UP, unit="1")
    metric.gauge.data_points.add(time_unix_nano=unix_ns, as_int=value)
    return metric


def _gauge(metric: Metric, family: Family, when: _When) -> int:
    for sample in family.samples:
        _number(metric.gauge.data_points.add(), sample, when.unix_ns)
    return len(family.samples)


def _counter(metric: Metric, family: Family, when: _When) -> int:
    metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    metric.sum.is_monotonic = True
    counted = [sample for sample in family.samples if sample.name == f"{family.name}_total"]
    for sample in counted:
        point = metric.sum.data_points.add()
        _number(point, sample, when.unix_ns)
        point.start_time_unix_nano = when.began.get(_labels(sample), 0)
    return len(counted)


def _histogram(metric: Metric, family: Family, when: _When) -> int:
    metric.histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    by_labels: dict[_Labels, list[Sample]] = {}
    for sample in family.samples:
        by_labels.setdefault(_labels(sample), []).append(sample)
    for labels, samples in by_labels.items():
        point = metric.histogram.data_points.add(
            time_unix_nano=when.unix_ns,
            start_time_unix_nano=when.began.get(labels, 0),
            attributes=_attributes(labels),
        )
        _fill(point, family.name, samples)
    return len(by_labels)


def _fill(point: HistogramDataPoint, name: str, samples: Iterable[Sample]) -> None:
    """Fill a point from the samples of one series. A page's buckets are cumulative, those of OTLP are not."""
    until: dict[float, float] = {}
    for sample in samples:
        if sample.name == f"{name}_bucket":
            until[float(sample.labels["le"])] = sample.value
        elif sample.name == f"{name}_sum" and math.isfinite(sample.value):
            point.sum = sample.value
        elif sample.name == f"{name}_count":
            point.count = _whole(sample.value)
    bounds = sorted(until)
    if not bounds or bounds[-1] != math.inf or len(bounds) > BUCKETS_MAX:
        raise NotAPage(f"{name}: a histogram of at most {BUCKETS_MAX} buckets, the last of them +Inf, is expected")
    before = 0
    for bound in bounds:
        count = _whole(until[bound])
        if count < before:
            raise NotAPage(f"{name}: the cumulative count of a bucket is smaller than that of the one before it")
        point.bucket_counts.append(count - before)
        before = count
    point.explicit_bounds.extend(bounds[:-1])
    point.count = before


_FILLED: Final = {"gauge": _gauge, "counter": _counter, "histogram": _histogram}


def _number(point: NumberDataPoint, sample: Sample, unix_ns: int) -> None:
    if not math.isfinite(sample.value):
        raise NotAPage(f"{sample.name}: its value is {sample.value}, and a number is expected")
    point.time_unix_nano = unix_ns
    point.as_double = sample.value
    point.attributes.extend(_attributes(_labels(sample)))


def _began(families: Iterable[Family]) -> dict[str, dict[_Labels, int]]:
    """Return when the series of each family began to count: the page has a family of its own for it."""
    found: dict[str, dict[_Labels, int]] = {}
    for family in families:
        counted = family.name.removesuffix("_created")
        if counted != family.name and counted in UNITS:
            found[counted] = {
                _labels(sample): round(sample.value * 1e9) for sample in family.samples if 0 < sample.value < 1e10
            }
    return found


def _labels(sample: Sample) -> _Labels:
    return tuple((label, sample.labels[label]) for label in ("model_name", "engine") if label in sample.labels)


def _attributes(labels: _Labels) -> list[KeyValue]:
    found: list[KeyValue] = []
    for label, text in labels:
        if label == "model_name":
            found.append(KeyValue(key=GEN_AI_REQUEST_MODEL, value=AnyValue(string_value=one_line(text))))
        elif text.isascii() and text.isdigit() and len(text) < 10:
            found.append(KeyValue(key=SCRAPE_ENGINE, value=AnyValue(int_value=int(text))))
    return found


def _whole(value: float) -> int:
    if not (0 <= value < 2**62 and value == int(value)):
        raise NotAPage(f"a count is {value}, and a whole number is expected")
    return int(value)
