"""Groups of OTLP requests, decoded to the store's tables: spans whole, hostile bodies refused, none harms another."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from telemetry.model.turn_spans import SPAN_KINDS, STATUS_CODES, SpanEvent, SpanLink, SpanRow
from telemetry.sidecar.otlp import attributes as values
from telemetry.sidecar.otlp.opening import ITEMS_MAX
from telemetry.sidecar.otlp.spans import NAME_BYTES_MAX, PARTS_MAX
from telemetry.store.schema import SCHEMAS, span_from_row, spans_table
from tests.fixtures_sidecar import any_value, decode_metrics, decode_traces, turns_request
from tests.fixtures_turns import client_turn
from tests.nightly import examples

from .protobuf_bytes import field, in_arrays

ROOT = Path(__file__).parents[4]
NO_REQUEST = "the body is not a protobuf ExportTraceServiceRequest"


def _request(*spans: Span) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.extend(spans)
    return request


def _span(number: int = 1, **fields: object) -> Span:
    ids = {"trace_id": b"\1" * 16, "span_id": number.to_bytes(8, "big")}
    return Span(**{**ids, "name": "x", "start_time_unix_nano": 1, **fields})  # type: ignore[arg-type]


def _pair(key: str, value: object) -> KeyValue:
    return KeyValue(key=key, value=any_value(value))


def _whole() -> ExportTraceServiceRequest:
    """A request that uses every field of which the store has a column."""
    request = ExportTraceServiceRequest()
    for service in ("a", "b"):
        of_resource = request.resource_spans.add()
        of_resource.resource.attributes.extend([_pair("service.name", service), _pair("host.cpu", 1.5)])
        for version in ("1", "2"):
            of_scope = of_resource.scope_spans.add()
            of_scope.scope.name, of_scope.scope.version = "scope", version
            span = of_scope.spans.add(name=f"span {version}", kind=Span.SPAN_KIND_CLIENT, trace_state="k=v")
            span.trace_id, span.span_id, span.parent_span_id = b"\1" * 16, b"\2" * 8, b"\3" * 8
            span.start_time_unix_nano, span.end_time_unix_nano = 2**63 - 1, 5
            span.status.code, span.status.message = 2, "went wrong"
            span.attributes.extend([_pair("list", [1, ["a", True]]), _pair("none", None), _pair("n", -1)])
            span.attributes.add(key="bytes").value.bytes_value = b"\0\xff"
            span.attributes.add(key="unset")
            event = span.events.add(name="event", time_unix_nano=7)
            event.attributes.extend([_pair("a", 1), _pair("a", "2")])
            span.links.add(trace_id=b"\4" * 16, span_id=b"\5" * 8, trace_state="t").attributes.append(_pair("l", 0.5))
            of_scope.spans.add(name="next", trace_id=b"\6" * 16, span_id=b"\7" * 8, start_time_unix_nano=1)
    return request


def _rows_of(request: ExportTraceServiceRequest) -> list[SpanRow]:
    """The spans of a request, read one after the other by Google's parser."""
    return [
        _row_of(span, of_resource, of_scope)
        for of_resource in request.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def _row_of(span: Span, of_resource: ResourceSpans, of_scope: ScopeSpans) -> SpanRow:
    resource_attributes = values.from_protobuf(of_resource.resource.attributes)
    service = resource_attributes.get("service.name")
    return SpanRow(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex() or None,
        name=span.name,
        service=service if isinstance(service, str) else "",
        start_unix_ns=span.start_time_unix_nano,
        end_unix_ns=span.end_time_unix_nano,
        attributes=values.from_protobuf(span.attributes),
        events=tuple(
            SpanEvent(event.name, event.time_unix_nano, values.from_protobuf(event.attributes)) for event in span.events
        ),
        links=tuple(
            SpanLink(link.trace_id.hex(), link.span_id.hex(), link.trace_state, values.from_protobuf(link.attributes))
            for link in span.links
        ),
        kind=SPAN_KINDS[span.kind] if span.kind in range(6) else "Unspecified",
        status_code=STATUS_CODES[span.status.code] if span.status.code in range(3) else "Unset",
        status_message=span.status.message,
        trace_state=span.trace_state,
        scope_name=of_scope.scope.name,
        scope_version=of_scope.scope.version,
        resource_attributes=resource_attributes,
    )


def _shown(rows: list[SpanRow]) -> list[str]:
    """Return rows as the store returns them, with their types and NaN."""
    return [repr(span_from_row(row)) for row in spans_table(rows).to_pylist()]


def test_group_is_decoded_at_once_and_bad_request_harms_no_other() -> None:
    turns = [client_turn(index) for index in range(4)]
    good = [turns_request(turns[:2]).SerializeToString(), turns_request(turns[2:]).SerializeToString()]
    no_span = _wrapped(b"\0")
    decoded = decode_traces([good[0], b"\xff\xff", no_span, good[1], b""])
    assert decoded.turns == turns
    assert decoded.spans["span_id"].to_pylist() == [turn.span_id for turn in turns]
    assert [(request.received, request.rejected, request.reasons) for request in decoded.requests] == [
        (2, 0, []),
        (0, 0, []),
        (0, 0, []),
        (2, 0, []),
        (0, 0, []),
    ]
    assert [request.fault for request in decoded.requests] == [None, NO_REQUEST, NO_REQUEST, None, None]


def test_tables_have_the_columns_of_the_store_even_of_nothing() -> None:
    for decode in (decode_traces, decode_metrics):
        decoded = decode([])
        assert (decoded.turns, decoded.spans.num_rows, decoded.points.num_rows, decoded.requests) == ([], 0, 0, [])
        assert (decoded.spans.schema, decoded.points.schema) == (SCHEMAS["spans"], SCHEMAS["points"])


def test_spans_are_kept_whole() -> None:
    request = _whole()
    decoded = decode_traces([request.SerializeToString()])
    decoded.spans.validate(full=True)
    assert [span_from_row(row) for row in decoded.spans.to_pylist()] == _rows_of(request)
    assert dict(decoded.unmapped) == {"scope/span 1": 2, "scope/span 2": 2, "scope/next": 4}


def test_numbers_of_newer_enum_values_are_unspecified() -> None:
    spans = [_span(1), _span(2)]
    spans[0].kind = 77  # type: ignore[assignment]
    spans[1].status.code = -3  # type: ignore[assignment]
    columns = decode_traces([_request(*spans).SerializeToString()]).spans
    assert (columns["span_kind"].to_pylist(), columns["status_code"].to_pylist()) == (
        ["Unspecified"] * 2,
        ["Unset"] * 2,
    )


@pytest.mark.slow
@settings(max_examples=examples(100, 400), deadline=None)
@given(st.data())
def test_damaged_bodies_are_read_like_google_parser_or_refused(data: st.DataObject) -> None:
    body = bytearray(_whole().SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        other = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from(("flip", "cut", "copy", "insert"))):
            case "flip":
                body[at] = data.draw(st.integers(0, 255))
            case "cut":
                del body[at : at + data.draw(st.integers(1, 9))]
            case "copy":
                body[at:at] = body[other : other + data.draw(st.integers(1, 40))]
            case _:
                body[at:at] = data.draw(st.sampled_from((b"\xff" * 9 + b"\1", b"\x7b", b"\x7c", b"\x4a\x00", b"\0")))
    decoded = decode_traces([bytes(body)])
    decoded.spans.validate(full=True)
    try:
        request = ExportTraceServiceRequest.FromString(bytes(body))
    except DecodeError:
        return  # what no column is made of (a schema's address) may be damaged
    if decoded.requests[0].fault is None:
        kept = [span for span in _rows_of(request) if _is_storable(span)]
        assert [repr(span_from_row(row)) for row in decoded.spans.to_pylist()] == _shown(kept)
        assert decoded.requests[0].received == decoded.spans.num_rows + decoded.requests[0].rejected
    else:
        assert b"\x7b" in body or decoded.requests[0].fault != NO_REQUEST, "otherwise only groups are refused"


def _is_storable(span: SpanRow) -> bool:
    times = [span.start_unix_ns, span.end_unix_ns, *(event.unix_ns for event in span.events)]
    ids = [(span.trace_id, 32), (span.span_id, 16)]
    return (
        all(len(span_id) == digits and span_id.strip("0") for span_id, digits in ids)
        and len(span.parent_span_id or "0" * 16) == 16
        and max(times) < 2**63
    )


def _wrapped(span: bytes, times: int = 1) -> bytes:
    return field(0x0A, field(0x12, field(0x12, span) * times))


@pytest.mark.parametrize("depth", [32, 33])
def test_the_limit_of_nesting_is_exact(depth: int) -> None:
    for fields in ({"attributes": [KeyValue(value=in_arrays(depth))]}, {"events": [{}], "links": [{}]}):
        request = _request(_span(**fields))
        (span,) = request.resource_spans[0].scope_spans[0].spans
        for owner in (*span.events, *span.links):
            owner.attributes.add().value.CopyFrom(in_arrays(depth))
        (result,) = decode_traces([request.SerializeToString()]).requests
        assert (result.fault, result.changed) == (None, int(depth == 33))


@pytest.mark.parametrize(
    "span",
    [
        b"\x7b" * 200_000,  # groups that begin and do not end
        b"\x7b" * 200_000 + b"\x7c" * 200_000,
        b"\x4a" + b"\xff" * 9 + b"\1" + b"a",  # a length of 2**64 - 1
        field(0x4A, field(0x12, field(0x2A, b"\x0a\x09"))),  # a cut array
    ],
    ids=["open groups", "groups", "length", "array"],
)
def test_bodies_that_would_end_a_decoder_are_refused(span: bytes) -> None:
    good = _request(_span()).SerializeToString()
    decoded = decode_traces([good, _wrapped(span), good])
    assert [request.fault for request in decoded.requests] == [None, NO_REQUEST, None]
    assert decoded.spans.num_rows == 2


@pytest.mark.parametrize(
    ("first", "second"), [(b"\x18\5", b"\x0a\1x"), (b"\x0a\1x", b"\x18\5"), (b"\x18\5", b""), (b"\x2a\0", b"\x10\1")]
)
def test_last_value_of_repeated_field_counts(first: bytes, second: bytes) -> None:
    span = _span().SerializeToString()
    for value in (
        field(0x12, first + second),
        field(0x12, first) + field(0x12, second),
    ):
        body = _wrapped(span + field(0x4A, b"\x0a\1k" + value))
        (expected,) = _rows_of(ExportTraceServiceRequest.FromString(body))
        (row,) = decode_traces([body]).spans.to_pylist()
        assert span_from_row(row) == expected


def _limit_cases() -> list[tuple[str, Span, str]]:
    many = [KeyValue(key="a")] * (PARTS_MAX + 1)
    long = "é" * NAME_BYTES_MAX
    parts = f"more than {PARTS_MAX}"
    return [
        ("attributes", _span(attributes=many), f"it has {parts} attributes"),
        ("events", _span(events=[Span.Event()] * (PARTS_MAX + 1)), f"it has {parts} events"),
        ("links", _span(links=[Span.Link()] * (PARTS_MAX + 1)), f"it has {parts} links"),
        ("of event", _span(events=[Span.Event(attributes=many)]), f"the resource of it has {parts} attributes"),
        ("of link", _span(links=[Span.Link(attributes=many)]), f"the resource of it has {parts} attributes"),
        ("name", _span(name=long), "a name of it is longer than 4096 bytes"),
        ("key", _span(attributes=[KeyValue(key=long)]), "a name of it is longer than 4096 bytes"),
        ("event name", _span(events=[Span.Event(name=long)]), "a name of it is longer than 4096 bytes"),
        ("size", _span(attributes=[_pair("a", "x" * (2 << 20))]), "larger than 2 MiB"),
    ]


@pytest.mark.parametrize(("span", "reason"), [pytest.param(*case[1:], id=case[0]) for case in _limit_cases()])
def test_span_over_limit_is_rejected_by_name_and_others_kept(span: Span, reason: str) -> None:
    decoded = decode_traces([_request(_span(1), span, _span(2)).SerializeToString()])
    (result,) = decoded.requests
    assert (result.received, result.rejected, decoded.spans["span_id"].to_pylist()) == (
        3,
        1,
        ["0" * 15 + "1", "0" * 15 + "2"],
    )
    assert reason in result.reasons[0]
    assert len(result.reasons[0]) < 1000


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (_wrapped(b"", ITEMS_MAX), f"more than {ITEMS_MAX} spans"),
        (b"\x0a\0" * (ITEMS_MAX + 1), f"more than {ITEMS_MAX} spans"),
        (b"\x10\0" * (ITEMS_MAX + 1), f"more than {ITEMS_MAX} spans"),
    ],
    ids=["spans", "resources", "unknown"],
)
def test_a_request_with_too_many_items_is_refused_with_the_limit(body: bytes, sentence: str) -> None:
    (result,) = decode_traces([body]).requests
    assert sentence in (result.fault or "")


_MEASURED = """
import resource
from tests.fixtures_sidecar import decode_traces
from tests.unit.telemetry.sidecar.test_otlp_tables import HOSTILE
decode_traces([b""])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, body in HOSTILE.items():
    (result,) = decode_traces([body()]).requests
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    print(grown_mb, name, result.fault, result.reasons, sep="; ")
"""


def _filled(unit: bytes, tag: int) -> bytes:
    """20 MB of spans that repeat a short field as often as a span may."""
    span = _span().SerializeToString() + (bytes([tag]) + unit) * 999
    return _wrapped(span, 20_000_000 // (len(span) + 3))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "empty spans": lambda: _wrapped(b"", 10_000_000),
    "attributes of spans": lambda: _filled(b"\0", 0x4A),
    "events": lambda: _filled(b"\0", 0x5A),
    "attributes of one span": lambda: _wrapped(b"\x4a\0" * 10_000_000),
    "attributes of large spans": lambda: _wrapped(b"\x4a\0" * 1_000_000, 10),
    "items of arrays": lambda: _wrapped(field(0x4A, field(0x12, field(0x2A, b"\x0a\0" * 1_000_000))), 10),
    "attributes of resources": lambda: (
        field(
            0x0A,
            field(0x0A, b"\x0a\0" * 900) + field(0x12, field(0x12, b"") * 20_000),
        )
        * 20
    ),
    "a large resource": lambda: field(
        0x0A,
        field(0x0A, _pair("k", "x" * (1 << 20)).SerializeToString())
        + field(0x12, field(0x12, _span().SerializeToString()) * 20_000),
    ),
}


@pytest.mark.slow
def test_twenty_megabytes_of_next_to_nothing_take_bounded_memory() -> None:
    command = [sys.executable, "-c", _MEASURED]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=300)
    lines = done.stdout.splitlines()
    assert len(lines) == len(HOSTILE)
    assert [line for line in lines if int(line.partition(";")[0]) >= 300] == []
