"""Metric points of every kind, from both encodings to rows of the store; what cannot be stored is refused alone."""

import base64
import json
import math
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from telemetry.sidecar.ingest import ExportRequest
from telemetry.sidecar.otlp.json_requests import metrics_from_json
from telemetry.sidecar.otlp.points import PARTS_MAX
from telemetry.sidecar.storing import decode
from tests.fixtures_sidecar import any_value, decode_metrics

from .protobuf_bytes import far, field

DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
TRACE_ID, SPAN_ID = bytes(range(16)), bytes(range(1, 9))


def _request() -> ExportMetricsServiceRequest:
    """One point of each kind, with every field of which the store has a column."""
    request = ExportMetricsServiceRequest()
    of_resource = request.resource_metrics.add()
    of_resource.resource.attributes.append(KeyValue(key="service.name", value=any_value("bot")))
    of_scope = of_resource.scope_metrics.add()
    of_scope.scope.name = "meter"
    metrics = of_scope.metrics
    when = {"start_time_unix_nano": 5, "time_unix_nano": 9}
    exemplar = {"time_unix_nano": 8, "trace_id": TRACE_ID, "span_id": SPAN_ID}
    gauge = metrics.add(name="g", unit="1").gauge.data_points.add(as_double=0.5, time_unix_nano=9)
    gauge.exemplars.add(as_int=3, **exemplar)
    metrics.add(name="s", unit="{turn}").sum.CopyFrom(Metric().sum)
    metrics[-1].sum.is_monotonic, metrics[-1].sum.aggregation_temporality = True, CUMULATIVE
    metrics[-1].sum.data_points.add(as_int=7, **when)
    histogram = metrics.add(name="h", unit="s").histogram
    histogram.aggregation_temporality = DELTA
    point = histogram.data_points.add(
        count=6, sum=3.5, min=0.125, max=2.0, explicit_bounds=[0.5, 1.0], bucket_counts=[1, 2, 3], **when
    )
    point.attributes.append(KeyValue(key="gen_ai.operation.name", value=any_value("chat")))
    point.exemplars.add(as_double=1.5, **exemplar)
    point.exemplars.add(as_double=0.25, time_unix_nano=8)
    exponential = metrics.add(name="e", unit="ms").exponential_histogram
    exponential.aggregation_temporality = CUMULATIVE
    point = exponential.data_points.add(
        count=10, sum=-1.5, min=-4.0, max=8.0, scale=-2, zero_count=1, zero_threshold=0.0625, **when
    )
    point.positive.offset, point.negative.offset = -3, 2
    point.positive.bucket_counts.extend([2, 0, 3])
    point.negative.bucket_counts.extend([4])
    point = metrics.add(name="q", unit="By").summary.data_points.add(count=4, sum=2.5, **when)
    point.quantile_values.add(quantile=0.0, value=0.5)
    point.quantile_values.add(quantile=0.99, value=math.nan)
    metrics.add(name="stale").histogram.data_points.add(flags=1, time_unix_nano=9)
    return request


EXEMPLAR = {"unix_ns": 8, "value": 1.5, "trace_id": TRACE_ID.hex(), "span_id": SPAN_ID.hex()}
ROWS: list[dict[str, Any]] = [
    {"name": "g", "unit": "1", "kind": "gauge", "value": 0.5, "exemplars": [{**EXEMPLAR, "value": 3.0}]},
    {
        "name": "s",
        "unit": "{turn}",
        "kind": "sum",
        "value": 7.0,
        "is_monotonic": True,
        "temporality": "cumulative",
        "start_unix_ns": 5,
    },
    {
        "name": "h",
        "unit": "s",
        "kind": "histogram",
        "temporality": "delta",
        "start_unix_ns": 5,
        "count": 6,
        "sum": 3.5,
        "min": 0.125,
        "max": 2.0,
        "explicit_bounds": [0.5, 1.0],
        "bucket_counts": [1, 2, 3],
        "exemplars": [EXEMPLAR, {"unix_ns": 8, "value": 0.25, "trace_id": "", "span_id": ""}],
        "attributes": '{"gen_ai.operation.name":"chat"}',
    },
    {
        "name": "e",
        "unit": "ms",
        "kind": "exponential_histogram",
        "temporality": "cumulative",
        "start_unix_ns": 5,
        "count": 10,
        "sum": -1.5,
        "min": -4.0,
        "max": 8.0,
        "scale": -2,
        "zero_count": 1,
        "zero_threshold": 0.0625,
        "positive_offset": -3,
        "positive_bucket_counts": [2, 0, 3],
        "negative_offset": 2,
        "negative_bucket_counts": [4],
    },
    {
        "name": "q",
        "unit": "By",
        "kind": "summary",
        "start_unix_ns": 5,
        "count": 4,
        "sum": 2.5,
        "quantiles": [{"quantile": 0.0, "value": 0.5}, {"quantile": 0.99, "value": None}],
    },
    {"name": "stale", "unit": "", "kind": "histogram", "flags": 1},
]


def _rows(body: bytes) -> list[dict[str, Any]]:
    decoded = decode_metrics([body])
    assert [(request.fault, request.rejected, request.changed) for request in decoded.requests] == [(None, 0, 0)]
    decoded.points.validate(full=True)
    return [{name: value for name, value in row.items() if value is not None} for row in decoded.points.to_pylist()]


def _expected() -> list[dict[str, Any]]:
    common = {"unix_ns": 9, "service": "bot", "attributes": "{}", "flags": 0, "scope_name": "meter"}
    return [{**common, **row} for row in ROWS]


def test_a_point_of_every_kind_is_a_row_with_all_that_it_says() -> None:
    assert _rows(_request().SerializeToString()) == _expected()


def _as_json(request: ExportMetricsServiceRequest) -> bytes:
    """OTLP/JSON by protobuf's own writer, but for the ids, which OTLP writes as hex."""

    def with_hex(value: Any) -> Any:
        if isinstance(value, list):
            return [with_hex(member) for member in value]
        if not isinstance(value, dict):
            return value
        ids = {name: base64.b64decode(value[name]).hex() for name in ("traceId", "spanId") if name in value}
        return {name: with_hex(member) for name, member in value.items()} | ids

    return json.dumps(with_hex(MessageToDict(request))).encode()


def test_json_says_the_same_as_protobuf() -> None:
    body = _as_json(_request())
    assert b'"aggregationTemporality": "AGGREGATION_TEMPORALITY_DELTA"' in body
    assert _rows(metrics_from_json(body)) == _expected()
    received = decode(ExportRequest("metrics", "json", body))
    assert [point.name for point in received.content.points] == [row["name"] for row in ROWS]
    for name, number in ((b'"AGGREGATION_TEMPORALITY_DELTA"', b"1"), (b'"AGGREGATION_TEMPORALITY_CUMULATIVE"', b"2")):
        body = body.replace(name, number)
    assert _rows(metrics_from_json(body)) == _expected()


def test_absent_fields_of_distribution_are_unknown_not_zero() -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="h")
    metric.histogram.data_points.add(count=3)
    (row,) = _rows(request.SerializeToString())
    assert (row["count"], row["explicit_bounds"], row["bucket_counts"]) == (3, [], [])
    assert {"sum", "min", "max", "temporality", "start_unix_ns", "value"}.isdisjoint(row)


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "3 buckets do not have 1 bounds between them": (
        "histogram",
        {"explicit_bounds": [1.0], "bucket_counts": [1, 2, 3]},
    ),
    "0 buckets do not have 1 bounds between them": ("histogram", {"explicit_bounds": [1.0]}),
    "the bounds of its buckets are not finite numbers that rise": (
        "histogram",
        {"explicit_bounds": [1.0, 1.0], "bucket_counts": [0, 0, 0]},
    ),
    "inf is not a finite number": ("histogram", {"sum": math.inf}),
    "nan is not a finite number": ("exponential_histogram", {"zero_threshold": math.nan}),
    "a count is too large to store (63 bits)": ("exponential_histogram", {"zero_count": 2**63}),
    "a quantile is not between 0 and 1": ("summary", {"quantile_values": [{"quantile": 1.5, "value": 1.0}]}),
    "a time is too large to store (63 bits)": ("summary", {"start_time_unix_nano": 2**63}),
    f"a point has more than {PARTS_MAX} buckets, bounds, quantiles and exemplars together": (
        "histogram",
        {"explicit_bounds": list(range(PARTS_MAX // 2)), "bucket_counts": [0] * (PARTS_MAX // 2 + 1)},
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_point_that_cannot_be_stored_is_refused_alone(sentence: str) -> None:
    kind, fields = REFUSED[sentence]
    request = _request()
    metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="bad")
    points = getattr(metric, kind).data_points
    points.add(**fields)
    points.add(count=1, time_unix_nano=9)
    decoded = decode_metrics([request.SerializeToString()])
    assert (decoded.requests[0].received, decoded.requests[0].rejected) == (len(ROWS) + 2, 1)
    assert decoded.requests[0].reasons == [f"metric 'bad': {sentence}"]
    assert decoded.points["name"].to_pylist() == [*(row["name"] for row in ROWS), "bad"]


def test_the_buckets_of_a_request_are_limited() -> None:
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    for _ in range(102):
        metrics.add(name="h").exponential_histogram.data_points.add().positive.bucket_counts.extend([0] * PARTS_MAX)
    decoded = decode_metrics([request.SerializeToString()])
    assert (decoded.points.num_rows, decoded.requests[0].rejected) == (100, 2)
    assert "more than 1000000 buckets" in decoded.requests[0].reasons[0]


@pytest.mark.parametrize("levels", [33, 49, 500])
def test_point_with_deep_attribute_is_refused(levels: int) -> None:
    request = _request()
    point = request.resource_metrics[0].scope_metrics[0].metrics[2].histogram.data_points[0]
    deep = field(0x4A, b"\x0a\4deep" + field(0x12, far(levels)))
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    items = [metric.SerializeToString() for metric in metrics]
    items[2] = b"\x0a\1h" + field(0x4A, field(0x0A, point.SerializeToString() + deep))
    whole = b"".join(field(0x12, item) for item in items)
    body = field(0x0A, field(0x12, whole))
    decoded = decode_metrics([body, _request().SerializeToString()])
    assert [(outcome.fault, outcome.received, outcome.rejected) for outcome in decoded.requests] == [
        (None, 6, 1),
        (None, 6, 0),
    ]
    assert decoded.requests[0].reasons == ["metric 'h': an attribute of a point is nested more than 32 levels deep"]
    assert "h" not in decoded.points["name"].to_pylist()[:5]


def test_texts_that_are_not_utf8_refuse_no_metric() -> None:
    body = _request().SerializeToString().replace(b"chat", b"ch\xffa").replace(b"meter", b"me\xc3er")
    decoded = decode_metrics([body])
    assert [(request.fault, request.rejected, request.changed) for request in decoded.requests] == [(None, 0, 2)]
    assert "not UTF-8" in decoded.requests[0].reasons[0]
    rows = decoded.points.to_pylist()
    assert {row["scope_name"] for row in rows} == {"me\ufffder"}
    assert json.loads(rows[2]["attributes"]) == {"gen_ai.operation.name": "ch\ufffda"}


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_body_with_any_change_is_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(_request().SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from(("replace", "insert", "remove", "repeat"))):
            case "replace":
                body[place] = data.draw(st.integers(0, 255))
            case "insert":
                body[place:place] = data.draw(st.binary(max_size=3))
            case "remove":
                del body[place : place + data.draw(st.integers(1, 3))]
            case _:
                body[place:place] = body[place : place + 20] * data.draw(st.integers(1, 30))
        if not body:
            return
    decoded = decode_metrics([bytes(body)])
    decoded.points.validate(full=True)
    (answer,) = decoded.requests
    try:
        request = ExportMetricsServiceRequest.FromString(bytes(body))
    except DecodeError:
        return
    if answer.fault is None:
        metrics = [
            metric
            for resource_metric in request.resource_metrics
            for scope in resource_metric.scope_metrics
            for metric in scope.metrics
        ]
        points = [p for m in metrics if (kind := m.WhichOneof("data")) for p in getattr(m, kind).data_points]
        assert answer.received == len(points)
        unset = sum(hasattr(p, "as_int") and not p.WhichOneof("value") and not p.flags & 1 for p in points)
        assert decoded.points.num_rows == answer.received - answer.rejected - unset


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_json_with_any_change_is_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(_as_json(_request()))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        odd = (b"null", b"-1", b"1e999", b'"NaN"', b"{}", b"[]", b'"', b"99999999999999999999", b"\xff", b"true")
        body[place : place + data.draw(st.integers(0, 4))] = data.draw(st.sampled_from(odd))
    answer = decode(ExportRequest("metrics", "json", bytes(body))).outcome
    assert "could not be decoded" not in str(answer), "no error but those that are meant"
