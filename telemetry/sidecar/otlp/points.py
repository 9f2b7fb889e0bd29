"""Metric points of OTLP as rows of the store: numbers, histograms, exponential histograms and summaries.

They are few compared with spans. Of the points that cannot be stored, each is refused separately.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, cast

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    SummaryDataPoint,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar as OtlpExemplar,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from telemetry.model.foreign_text import one_line, several_lines
from telemetry.sidecar.otlp.attributes import NestedTooDeeply, OtlpDecodeError, from_protobuf
from telemetry.sidecar.otlp.opening import TOO_DEEP, Cleaner, DecodedRequest, OpenedRequest
from telemetry.store.point_rows import Exemplar, PointKind
from telemetry.store.schema import PointRow

# Of one request: points, attributes of points, and buckets, bounds, quantiles and exemplars together.
POINTS_MAX: Final = 200_000
ATTRIBUTES_MAX: Final = 1_000_000
REQUEST_PARTS_MAX: Final = 1_000_000
_TOO_MANY_PARTS: Final = (
    f"the points of the request have more than {REQUEST_PARTS_MAX} buckets, bounds, quantiles and exemplars together; "
    "send smaller batches"
)
# Of one point: buckets, bounds, quantiles and exemplars together. The SDKs make 160 buckets, and 320 with both signs.
PARTS_MAX: Final = 10_000
_INT64_MAX: Final = 2**63 - 1
_TEXT_MAX_CHARS: Final = 2**16
_NO_VALUE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_TEMPORALITIES: Final[dict[int, Literal["delta", "cumulative"]]] = {
    AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA: "delta",
    AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE: "cumulative",
}
Point = NumberDataPoint | HistogramDataPoint | ExponentialHistogramDataPoint | SummaryDataPoint


class RefusedPoint(Exception):  # noqa: N818 - reads as what happened
    """Raised for a point that is not stored; the message says why."""


def read_points(body: bytes, cleaner: Cleaner | None = None) -> DecodedRequest:
    """Read a metrics export in protobuf, without what the cleaner removes. Raises OtlpDecodeError if it is of another
    type, or has too much content."""
    request = OpenedRequest(body, "metrics", cleaner)
    reader = _PointReader(request.result)
    for _ in request.items(_service, lambda scope: one_line(scope.name), reader.read):
        pass
    return request.finish()


def _service(resource: Resource) -> str:
    named = [pair.value.string_value for pair in resource.attributes if pair.key == "service.name"]
    return one_line(named[-1]) if named else ""


class _PointReader:
    """Reads the metrics of one request."""

    def __init__(self, result: DecodedRequest) -> None:
        self._result = result
        self._attributes = self._parts = 0

    def read(self, metric: Metric, service: str, scope_name: str) -> None:
        """Read the points of a metric. Raises OtlpDecodeError if the request has too many."""
        kind = metric.WhichOneof("data")
        points: Any = getattr(metric, kind).data_points if kind is not None else ()
        self._result.received += len(points)
        self._attributes += sum(len(point.attributes) for point in points)
        if self._result.received > POINTS_MAX or self._attributes > ATTRIBUTES_MAX:
            raise OtlpDecodeError(
                f"the request holds more than {POINTS_MAX} points, or more than {ATTRIBUTES_MAX} attributes of points; "
                "send smaller batches"
            )
        for point in points:
            self._parts += parts_of(point)
            if self._parts > REQUEST_PARTS_MAX:
                self._result.reject(_TOO_MANY_PARTS)
                continue
            try:
                row = point_row(metric, point, service, scope_name)
            except RefusedPoint as refused:
                self._result.reject(f"metric {one_line(metric.name)!r}: {refused}")
            else:
                if row is not None:
                    self._result.points.append(row)


def parts_of(point: Point) -> int:
    """Return the number of buckets, bounds, quantiles and exemplars of a point."""
    match point:
        case NumberDataPoint():
            return len(point.exemplars)
        case HistogramDataPoint():
            return len(point.exemplars) + len(point.bucket_counts) + len(point.explicit_bounds)
        case ExponentialHistogramDataPoint():
            return len(point.exemplars) + len(point.positive.bucket_counts) + len(point.negative.bucket_counts)
        case SummaryDataPoint():
            return len(point.quantile_values)


def point_row(metric: Metric, point: Point, service: str, scope_name: str) -> PointRow | None:
    """The row of a point; None if its sender left the number out. Raises RefusedPoint."""
    if parts_of(point) > PARTS_MAX:
        raise RefusedPoint(f"a point has more than {PARTS_MAX} buckets, bounds, quantiles and exemplars together")
    kind = cast(PointKind, metric.WhichOneof("data"))
    data = getattr(metric, kind)
    has_value = not point.flags & _NO_VALUE
    fields = _FIELDS[kind](point) if has_value else {"value": None}
    if fields is None:
        return None
    try:
        attributes = from_protobuf(point.attributes)
    except NestedTooDeeply:
        raise RefusedPoint(TOO_DEEP) from None
    return PointRow(
        one_line(metric.name),
        _moment(point.time_unix_nano),
        attributes=_plain_pairs(attributes),
        service=service,
        kind=kind,
        unit=one_line(metric.unit),
        scope_name=scope_name,
        temporality=_TEMPORALITIES.get(getattr(data, "aggregation_temporality", 0)),
        is_monotonic=data.is_monotonic if kind == "sum" else None,
        start_unix_ns=_moment(point.start_time_unix_nano) or None,
        flags=point.flags,
        exemplars=[] if isinstance(point, SummaryDataPoint) else _exemplars(point.exemplars),
        **fields,
    )


def _number(point: NumberDataPoint) -> dict[str, Any] | None:
    stated = point.WhichOneof("value")
    return None if stated is None else {"value": _finite(float(getattr(point, stated)))}


def _histogram(point: HistogramDataPoint) -> dict[str, Any]:
    bounds, counts = list(point.explicit_bounds), _counts(point.bucket_counts)
    if len(counts) != len(bounds) + 1 and (counts or bounds):
        raise RefusedPoint(f"{len(counts)} buckets do not have {len(bounds)} bounds between them")
    if not all(map(math.isfinite, bounds)) or any(a >= b for a, b in pairwise(bounds)):
        raise RefusedPoint("the bounds of its buckets are not finite numbers that rise")
    return {**_distribution(point), "explicit_bounds": bounds, "bucket_counts": counts}


def _exponential_histogram(point: ExponentialHistogramDataPoint) -> dict[str, Any]:
    return {
        **_distribution(point),
        "scale": point.scale,
        "zero_count": _count(point.zero_count),
        "zero_threshold": _finite(point.zero_threshold),
        "positive_offset": point.positive.offset,
        "positive_bucket_counts": _counts(point.positive.bucket_counts),
        "negative_offset": point.negative.offset,
        "negative_bucket_counts": _counts(point.negative.bucket_counts),
    }


def _distribution(point: HistogramDataPoint | ExponentialHistogramDataPoint) -> dict[str, Any]:
    stated: tuple[Any, ...] = ("sum", "min", "max")
    figures = {name: _finite(getattr(point, name)) for name in stated if point.HasField(name)}
    return {"value": None, "count": _count(point.count), **figures}


def _summary(point: SummaryDataPoint) -> dict[str, Any]:
    quantiles = [(entry.quantile, entry.value) for entry in point.quantile_values]
    if not all(0 <= quantile <= 1 for quantile, _ in quantiles):
        raise RefusedPoint("a quantile is not between 0 and 1")
    # Prometheus reports NaN if nothing was observed recently.
    known = [(quantile, None if math.isnan(value) else _finite(value)) for quantile, value in quantiles]
    return {"value": None, "count": _count(point.count), "sum": _finite(point.sum), "quantiles": known}


_FIELDS: Final[dict[PointKind, Callable[[Any], dict[str, Any] | None]]] = {
    "gauge": _number,
    "sum": _number,
    "histogram": _histogram,
    "exponential_histogram": _exponential_histogram,
    "summary": _summary,
}


def _exemplars(exemplars: Iterable[OtlpExemplar]) -> Sequence[Exemplar]:
    kept: list[Exemplar] = []
    for exemplar in exemplars:
        stated = exemplar.WhichOneof("value")
        if stated is not None and math.isfinite(value := float(getattr(exemplar, stated))):
            kept.append(
                Exemplar(_moment(exemplar.time_unix_nano), value, _id(exemplar.trace_id, 16), _id(exemplar.span_id, 8))
            )
    return kept


def _id(octets: bytes, size_bytes: int) -> str:
    return octets.hex() if len(octets) == size_bytes and any(octets) else ""


def _moment(unix_ns: int) -> int:
    if unix_ns > _INT64_MAX:
        raise RefusedPoint("a time is too large to store (63 bits)")
    return unix_ns


def _count(count: int) -> int:
    if count > _INT64_MAX:
        raise RefusedPoint("a count is too large to store (63 bits)")
    return count


def _counts(counts: Iterable[int]) -> list[int]:
    listed = list(counts)
    _count(max(listed, default=0))
    return listed


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise RefusedPoint(f"{value} is not a finite number")
    return value


def _plain(value: object) -> object:
    """A value with control characters written out, at any depth."""
    if isinstance(value, str):
        return several_lines(value, _TEXT_MAX_CHARS)
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return _plain_pairs(cast("dict[str, object]", value))
    return value


def _plain_pairs(pairs: dict[str, object]) -> dict[str, object]:
    return {one_line(name): _plain(value) for name, value in pairs.items()}
