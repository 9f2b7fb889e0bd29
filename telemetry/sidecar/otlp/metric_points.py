"""Reads the points of OTLP metrics, of every kind, a point at a time; there are few beside the spans."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from telemetry.model.foreign_text import one_line
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.framing import ITEM_BYTES_MAX, framed
from telemetry.sidecar.otlp.point_values import TOO_DEEP, Point, RefusedPoint, parts_of, point_row
from telemetry.sidecar.otlp.readable import METRIC, RESOURCE, SCOPE, Readable, Shape, readable
from telemetry.sidecar.privacy.requests import Redactor
from telemetry.store.redaction import framework_of
from telemetry.store.schema import PointRow

POINTS_MAX: Final = 200_000
ATTRIBUTES_MAX: Final = 1_000_000
# Of the points of a request together: buckets, bounds, quantiles and exemplars.
REQUEST_PARTS_MAX: Final = 1_000_000
_MESSAGE: Final = "ExportMetricsServiceRequest"
_TOO_MANY_PARTS: Final = (
    f"the points of the request have more than {REQUEST_PARTS_MAX} buckets, bounds, quantiles and exemplars together; "
    "send smaller batches"
)
# Of a request so many metrics that were changed are described.
_DESCRIBED_MAX: Final = 3
_Part = TypeVar("_Part", Metric, Resource, InstrumentationScope)


@dataclass(slots=True)
class ReadPoints:
    """The points of one request; of those that are not stored how many there are for each reason. `changed` counts the
    metrics that are not stored as they were sent, for these `changes`. `body` is what may be written of the request."""

    body: bytes
    points: list[PointRow] = field(default_factory=list[PointRow])
    received: int = 0
    attributes: int = 0
    parts: int = 0
    rejected: dict[str, int] = field(default_factory=dict[str, int])
    changed: int = 0
    changes: list[str] = field(default_factory=list[str])

    def reject(self, reason: str, points: int = 1) -> None:
        """Count points that are not stored."""
        self.rejected[reason] = self.rejected.get(reason, 0) + points


def read_points(body: bytes, redactor: Redactor | None = None) -> ReadPoints:
    """Read a metrics export in protobuf, without what the redactor takes out of it. Raises OtlpDecodeError when it is
    not one, or holds more than can be taken."""
    found = ReadPoints(body)
    for service, scope_name, metric in _metrics(body, found, redactor):
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
        for point in points:
            _take(metric, point, service, scope_name, found)
    return found


def _take(metric: Metric, point: Point, service: str, scope_name: str, found: ReadPoints) -> None:
    found.parts += parts_of(point)
    if found.parts > REQUEST_PARTS_MAX:
        found.reject(_TOO_MANY_PARTS)
        return
    try:
        row = point_row(metric, point, service, scope_name)
    except RefusedPoint as refused:
        found.reject(f"metric {one_line(metric.name)!r}: {refused}")
    else:
        if row is not None:
            found.points.append(row)


def _metrics(body: bytes, found: ReadPoints, redactor: Redactor | None) -> Iterator[tuple[str, str, Metric]]:
    """Each metric with the names of its service and its scope, one at a time so that only one is in memory."""
    cut = framed(body, _MESSAGE, "metrics")
    for payload in (*cut.resources, *cut.scopes, *cut.items):
        if len(payload) > ITEM_BYTES_MAX:
            raise OtlpDecodeError(f"a metric, its resource or its scope is larger than {ITEM_BYTES_MAX >> 20} MiB")
    resources = [_read(Resource, payload, RESOURCE, found) for payload in cut.resources]
    named = [_read(InstrumentationScope, payload, SCOPE, found) for payload in cut.scopes]
    frameworks = [framework_of(scope.name) for scope in named]
    is_changed = False
    if redactor is not None:
        is_changed = redactor.clean_around(cut)
        resources = [Resource.FromString(payload) for payload in cut.resources]
        named = [InstrumentationScope.FromString(payload) for payload in cut.scopes]
    services = [_service(resource) for resource in resources]
    scopes = [one_line(scope.name) for scope in named]
    for place, (payload, resource, scope) in enumerate(zip(cut.items, cut.resource_of, cut.scope_of, strict=True)):
        metric = _read(Metric, payload, METRIC, found)
        if redactor is not None:
            cut.items[place] = redactor.metric(payload, frameworks[scope])
            if cut.items[place] is not payload:
                is_changed = True
                metric = Metric.FromString(cut.items[place])
        yield services[resource], scopes[scope], metric
    if is_changed:
        found.body = cut.assembled()


def _read(kind: type[_Part], payload: bytes, shape: Shape, found: ReadPoints) -> _Part:
    """A message, without what no parser takes. Raises OtlpDecodeError when it is not one."""
    try:
        return kind.FromString(payload)
    except DecodeError:
        changed = readable(payload, shape)
    try:
        message = kind.FromString(changed.payload if changed is not None else payload)
    except DecodeError as error:
        raise OtlpDecodeError(f"the body is not a protobuf {_MESSAGE}") from error
    if changed is not None:
        _note(changed, f"metric {one_line(message.name)!r}" if isinstance(message, Metric) else "a resource", found)
    return message


def _note(changed: Readable, what: str, found: ReadPoints) -> None:
    points = changed.left_out.pop("point", 0)
    if points:
        found.received += points
        found.reject(f"{what}: {TOO_DEEP}", points)
    if changed.is_changed:
        found.changed += 1
        if len(found.changes) < _DESCRIBED_MAX:
            found.changes.append(f"{what}: {changed.sentence()}")


def _service(resource: Resource) -> str:
    named = [pair.value.string_value for pair in resource.attributes if pair.key == "service.name"]
    return one_line(named[-1]) if named else ""
