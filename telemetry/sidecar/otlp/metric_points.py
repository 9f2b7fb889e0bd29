"""Reads the points of OTLP metrics: gauges and sums, a point at a time; there are few beside the spans."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags, Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from telemetry.model.foreign_text import one_line, several_lines
from telemetry.sidecar.otlp import attributes as values
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.framing import ITEM_BYTES_MAX, framed
from telemetry.store.schema import PointRow

POINTS_MAX: Final = 200_000
ATTRIBUTES_MAX: Final = 1_000_000
_MESSAGE: Final = "ExportMetricsServiceRequest"
_NO_VALUE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_INT64_MAX: Final = 2**63 - 1
_TEXT_MAX_CHARS: Final = 2**16


@dataclass(slots=True)
class ReadPoints:
    """The points of one request; of those that are not stored how many there are for each reason."""

    points: list[PointRow] = field(default_factory=list[PointRow])
    received: int = 0
    attributes: int = 0
    rejected: dict[str, int] = field(default_factory=dict[str, int])

    def reject(self, reason: str, points: int = 1) -> None:
        """Count points that are not stored."""
        self.rejected[reason] = self.rejected.get(reason, 0) + points


def read_points(body: bytes) -> ReadPoints:
    """Read a metrics export in protobuf. Raises OtlpDecodeError when it is not one, or holds more than can be taken."""
    found = ReadPoints()
    for service, metric in _metrics(body):
        kind = metric.WhichOneof("data")
        if kind is None:
            continue
        points = getattr(metric, kind).data_points
        found.received += len(points)
        found.attributes += sum(len(point.attributes) for point in points)
        if found.received > POINTS_MAX or found.attributes > ATTRIBUTES_MAX:
            raise OtlpDecodeError(
                f"the request holds more than {POINTS_MAX} points, or more than {ATTRIBUTES_MAX} attributes of points; "
                "send smaller batches"
            )
        if kind in ("gauge", "sum"):
            for point in points:
                _take(metric.name, service, point, found)
        elif points:
            found.reject(f"metric {metric.name!r}: {kind} points are not stored, only gauges and sums", len(points))
    return found


def _metrics(body: bytes) -> Iterator[tuple[str, Metric]]:
    """Each metric with the name of its service, one at a time so that only one is in memory."""
    cut = framed(body, _MESSAGE, "metrics")
    try:
        for payload in (*cut.resources, *cut.items):
            if len(payload) > ITEM_BYTES_MAX:
                raise OtlpDecodeError(f"a metric or its resource is larger than {ITEM_BYTES_MAX >> 20} MiB")
        services = [_service(Resource.FromString(payload)) for payload in cut.resources]
        for payload, resource in zip(cut.items, cut.resource_of, strict=True):
            yield services[resource], Metric.FromString(payload)
    except DecodeError as error:
        raise OtlpDecodeError(f"the body is not a protobuf {_MESSAGE}") from error


def _service(resource: Resource) -> str:
    name = values.from_protobuf(resource.attributes).get("service.name")
    return one_line(name) if isinstance(name, str) else ""


def _take(name: str, service: str, point: NumberDataPoint, found: ReadPoints) -> None:
    kind = point.WhichOneof("value")
    attributes = values.from_protobuf(point.attributes)
    if kind is None or point.flags & _NO_VALUE:
        return  # the sender reports that there was nothing to measure
    value = float(getattr(point, kind))
    if point.time_unix_nano > _INT64_MAX:
        found.reject(f"metric {name!r}: a time is too large to store (63 bits)")
    elif not math.isfinite(value):
        found.reject(f"metric {name!r}: {value} is not a finite number")
    else:
        found.points.append(PointRow(one_line(name), point.time_unix_nano, value, _plain_pairs(attributes), service))


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
