"""Generates the page of the sidecar's OTLP receivers from their limits."""

from typing import Final

from docs_build.markdown import code, page, table
from telemetry.sidecar.http_connections import HEADER_BYTES_MAX
from telemetry.sidecar.ingest import PENDING_BYTES_MAX, PENDING_S_MAX
from telemetry.sidecar.limits import ConnectionLimits
from telemetry.sidecar.otlp.attributes import DEPTH_MAX
from telemetry.sidecar.otlp.body import BODY_BYTES_MAX, COMPRESSIONS
from telemetry.sidecar.otlp.grpc import STREAMS_PER_CONNECTION
from telemetry.sidecar.otlp.grpc_health import WATCHERS_MAX
from telemetry.sidecar.otlp.json_requests import OBJECTS_MAX, VALUES_MAX
from telemetry.sidecar.otlp.opening import ITEM_BYTES_MAX, ITEMS_MAX, REPEATED_BYTES_MAX
from telemetry.sidecar.otlp.points import ATTRIBUTES_MAX, POINTS_MAX
from telemetry.sidecar.otlp.points import PARTS_MAX as POINT_PARTS_MAX
from telemetry.sidecar.otlp.points import REQUEST_PARTS_MAX as METRIC_PARTS_MAX
from telemetry.sidecar.otlp.readable import DROPPED_ATTRIBUTES
from telemetry.sidecar.otlp.receive_slots import PATIENCE_S, SLOTS, WAITING_MAX
from telemetry.sidecar.otlp.spans import NAME_BYTES_MAX, PARTS_MAX, REQUEST_PARTS_MAX

_NAMES: Final = ", ".join(map(code, sorted(COMPRESSIONS)))
INTRODUCTION: Final = f"""
The sidecar receives traces and metrics as the OpenTelemetry Collector does: over gRPC, and over HTTP by POST to
`/v1/traces` and `/v1/metrics`, in protobuf (`application/x-protobuf`) or JSON (`application/json`). A body may be
compressed: {_NAMES} over HTTP,
also several times; gzip and deflate over gRPC. What was accepted is durable when it is answered. A slash behind the
path does not matter.

The gRPC port also has gRPC's health service, `grpc.health.v1.Health`: `Check` and `Watch` say SERVING as long as
`/readyz` answers 200, for the empty name and for the names of the two services. Like `/readyz`, it asks for no token.
"""

ANSWERS: Final = (
    ("accepted, perhaps with rejected items in `partial_success`", "200", "OK"),
    ("the body cannot be decoded or decompressed", "400", "INVALID_ARGUMENT"),
    ("the token is missing or wrong", "401", "UNAUTHENTICATED"),
    ("another method or path", "405 or 404", "CANCELLED"),
    ("logs, or profiles", "404", "UNIMPLEMENTED"),
    ("the body did not arrive in time", "408", "DEADLINE_EXCEEDED"),
    (f"more than {BODY_BYTES_MAX >> 20} MiB, compressed or decompressed", "413", "RESOURCE_EXHAUSTED"),
    ("another content type or compression", "415", "INTERNAL, of gRPC's own library"),
    (
        "overload, a full disk: send it again as it says",
        "503 with `Retry-After`",
        "UNAVAILABLE with `RetryInfo`",
    ),
)

AFTER: Final = f"""
Connections above the limit are answered 503 or closed at once. Of HTTP connections, those that wait for a request are
closed first, longest waiting first, to admit new ones. At its start, the sidecar raises its limit of open descriptors
as far as it may; if that is not enough for the connections, it admits fewer.

A gRPC message that is slow yields its place to others that wait: after {PATIENCE_S:g} s, sooner the more wait.
"""

CONTENTS: Final = (
    ("resources, scopes, and spans or metrics of a request, together", f"{ITEMS_MAX:,}", "the request"),
    ("attributes, events and links of all its spans", f"{REQUEST_PARTS_MAX:,}", "the request"),
    ("resources and scopes, times the spans that repeat them", f"{REPEATED_BYTES_MAX >> 20} MiB", "the request"),
    ("metric points, and attributes of them", f"{POINTS_MAX:,}; {ATTRIBUTES_MAX:,}", "the request"),
    ("buckets, bounds, quantiles and exemplars of all its points", f"{METRIC_PARTS_MAX:,}", "the points beyond it"),
    ("the same of a metric point", f"{POINT_PARTS_MAX:,}", "the point"),
    ("objects and arrays in JSON, and values", f"{OBJECTS_MAX:,}; {VALUES_MAX:,}", "the request"),
    ("a span, its resource or its scope", f"{ITEM_BYTES_MAX >> 20} MiB", "the span"),
    ("attributes, events and links of a span, each", f"{PARTS_MAX:,}", "the span"),
    ("attributes of a resource, an event or a link", f"{PARTS_MAX:,}", "the span"),
    ("a name: of a span, an event, a scope, an attribute", f"{NAME_BYTES_MAX:,} bytes", "the span"),
    ("levels of nested values of an attribute", f"{DEPTH_MAX}", "the attribute"),
)

CHANGED: Final = f"""
An attribute that is nested too deeply is left out, and its span, event, link or resource is stored with their number in
the attribute {code(DROPPED_ATTRIBUTES)}. In a text that is not UTF-8, U+FFFD stands for the bytes that are not. The
answer says so in `partial_success`, with no rejected items; `/v1/state` counts such items under `changed`. A
metric point with an attribute that is nested too deeply is rejected: without it, it would be of another series.
"""


def receivers_page() -> str:
    """Return the page with the answers of the receivers and their limits."""
    limits = ConnectionLimits()
    rows = (
        ("connections, for HTTP and for gRPC each", f"{limits.connections}", code("--max-connections")),
        ("a body, compressed or decompressed", f"{BODY_BYTES_MAX >> 20} MiB", "fixed"),
        ("all bodies of requests in progress", f"{limits.bodies_bytes >> 20} MiB", code("--body-memory")),
        ("requests that wait to be stored", f"{PENDING_BYTES_MAX >> 20} MiB, {PENDING_S_MAX:g} s of work", "fixed"),
        ("gRPC messages that are received at once", f"{SLOTS}, and {WAITING_MAX} that wait for it", "fixed"),
        ("gRPC calls at once on a connection", f"{STREAMS_PER_CONNECTION}", "fixed"),
        ("gRPC calls that watch the health service", f"{WATCHERS_MAX}", "fixed"),
        ("header of a request", f"{HEADER_BYTES_MAX >> 10} KiB", "fixed"),
        ("time for a header, or for opening a gRPC connection", f"{limits.header_s:g} s", code("--header-timeout")),
        ("time for a body", f"{limits.body_s:g} s", code("--body-timeout")),
        (f"time for every {limits.stall_bytes >> 10} KiB of an HTTP body", f"{limits.stall_s:g} s", "a third of it"),
        ("time between two requests", f"{limits.idle_s:g} s", code("--idle-timeout")),
        ("time for reading a response", f"{limits.write_s:g} s", "fixed"),
    )
    return page(
        "OTLP receivers",
        INTRODUCTION,
        "## Answers\n\nErrors carry a `google.rpc.Status` in the encoding of the request.\n",
        table(("A request", "HTTP", "gRPC"), ANSWERS),
        "## Limits\n",
        table(("Of", "Limit", "Option"), rows),
        AFTER,
        "## Contents of a request\n\nWhat holds more is rejected; the answer names the limit. No text is cut short.\n",
        table(("Of", "Limit", "Rejected"), CONTENTS),
        CHANGED,
    )
