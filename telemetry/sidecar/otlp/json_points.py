"""Turns the metrics of OTLP/JSON into those of protobuf: points of every kind."""

from collections.abc import Callable
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    SummaryDataPoint,
)

from telemetry.sidecar.otlp import json_items as items
from telemetry.sidecar.otlp import json_values as values

_POINT_KINDS: Final = {
    "gauge": "gauge",
    "sum": "sum",
    "histogram": "histogram",
    "exponentialHistogram": "exponential_histogram",
    "summary": "summary",
}
_COUNT: Final = (0, items.UINT64_MAX)


def add_metric(add: Callable[..., Metric], metric: dict[str, Any]) -> None:
    """Add a metric; one that states several kinds of points, which protobuf cannot, is as many. Raises OtlpDecodeError
    when it is invalid."""
    name, unit = values.text(metric.get("name"), "name"), values.text(metric.get("unit"), "unit")
    for key, kind in _POINT_KINDS.items():
        if key not in metric:
            continue
        stated = values.mapping(metric[key], key)
        data = getattr(add(name=name, unit=unit), kind)
        data.SetInParent()
        if key not in ("gauge", "summary"):
            temporality = items.enum(stated.get("aggregationTemporality"), "temporality", AggregationTemporality)
            data.aggregation_temporality = temporality
        if key == "sum":
            data.is_monotonic = values.flag(stated.get("isMonotonic", False), "isMonotonic")
        for point in values.objects(stated.get("dataPoints"), "dataPoints"):
            _point(data.data_points.add(), point)


def _point(message: Any, point: dict[str, Any]) -> None:
    message.flags = _integer(point, "flags") & items.UINT32_MAX
    message.start_time_unix_nano = items.moment(point.get("startTimeUnixNano"), "startTimeUnixNano")
    message.time_unix_nano = items.moment(point.get("timeUnixNano"), "timeUnixNano")
    items.attributes(message.attributes, point.get("attributes"))
    match message:
        case NumberDataPoint():
            _number(message, point)
        case HistogramDataPoint():
            _distribution(message, point)
            message.bucket_counts.extend(_counts(point, "bucketCounts"))
            bounds = values.items(point.get("explicitBounds"), "explicitBounds")
            message.explicit_bounds.extend(values.number(each, "explicitBounds") for each in bounds)
        case ExponentialHistogramDataPoint():
            _exponential(message, point)
        case SummaryDataPoint():
            _summary(message, point)
        case _:  # pragma: no cover - there is no other
            raise TypeError(message)


def _number(message: NumberDataPoint | Exemplar, point: dict[str, Any]) -> None:
    if point.get("asInt") is not None:
        message.as_int = values.integer(point["asInt"], "asInt", *items.INT64)
    elif point.get("asDouble") is not None:
        message.as_double = values.number(point["asDouble"], "asDouble")
    if isinstance(message, NumberDataPoint):
        _exemplars(message, point)


def _distribution(message: HistogramDataPoint | ExponentialHistogramDataPoint, point: dict[str, Any]) -> None:
    message.count = _integer(point, "count")
    for name in ("sum", "min", "max"):
        if point.get(name) is not None:
            setattr(message, name, values.number(point[name], name))
    _exemplars(message, point)


def _exponential(message: ExponentialHistogramDataPoint, point: dict[str, Any]) -> None:
    _distribution(message, point)
    message.scale = _integer(point, "scale", items.INT32)
    message.zero_count = _integer(point, "zeroCount")
    message.zero_threshold = _number_of(point, "zeroThreshold")
    for name, buckets in (("positive", message.positive), ("negative", message.negative)):
        stated = values.mapping(point.get(name), name)
        buckets.offset = _integer(stated, "offset", items.INT32)
        buckets.bucket_counts.extend(_counts(stated, "bucketCounts"))


def _summary(message: SummaryDataPoint, point: dict[str, Any]) -> None:
    message.count = _integer(point, "count")
    message.sum = _number_of(point, "sum")
    for stated in values.objects(point.get("quantileValues"), "quantileValues"):
        message.quantile_values.add(
            quantile=_number_of(stated, "quantile"),
            value=_number_of(stated, "value"),
        )


def _exemplars(message: Any, point: dict[str, Any]) -> None:
    for stated in values.objects(point.get("exemplars"), "exemplars"):
        exemplar = message.exemplars.add(
            time_unix_nano=items.moment(stated.get("timeUnixNano"), "timeUnixNano"),
            trace_id=items.id_octets(stated.get("traceId"), "traceId"),
            span_id=items.id_octets(stated.get("spanId"), "spanId"),
        )
        _number(exemplar, stated)


def _counts(owner: dict[str, Any], name: str) -> list[int]:
    return [values.integer(each, name, *_COUNT) for each in values.items(owner.get(name), name)]


def _integer(owner: dict[str, Any], name: str, limits: tuple[int, int] = _COUNT) -> int:
    return 0 if owner.get(name) is None else values.integer(owner[name], name, *limits)


def _number_of(owner: dict[str, Any], name: str) -> float:
    return 0.0 if owner.get(name) is None else values.number(owner[name], name)
