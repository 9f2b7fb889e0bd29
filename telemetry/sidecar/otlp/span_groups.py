"""The spans of a group of requests, serialized, and the chunks in which they are decoded."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.framing import ITEM_BYTES_MAX, Framed, framed
from telemetry.sidecar.otlp.readable import RESOURCE, SCOPE, SPAN, readable
from telemetry.sidecar.otlp.span_columns import Places

_MESSAGE: Final = "ExportTraceServiceRequest"
NOT_A_REQUEST: Final = f"the body is not a protobuf {_MESSAGE}"
# What is decoded at a time may take 37 times as much in memory as on the wire.
_CHUNK_BYTES: Final = 4 << 20
# Of a request so many spans that were changed are described.
_DESCRIBED_MAX: Final = 3
# A name is shown to tell which span is meant.
SHOWN_CHARS: Final = 500


class SpanGroup:
    """The spans of a group of requests, serialized; of each the number of its request and the places of its resource
    and scope. `faults` has a sentence for each request that cannot be taken; of the others, `changed` counts the items
    that are not stored as they were sent, and `changes` describes the first of them."""

    def __init__(self) -> None:
        self.spans: list[bytes] = []
        self.request_of: list[int] = []
        self.resource_of: list[int] = []
        self.scope_of: list[int] = []
        self.resources: list[bytes] = []
        self.scopes: list[bytes] = []
        self.faults: list[str | None] = []
        self.received: list[int] = []
        self.too_large: list[tuple[int, str]] = []
        self.changed: list[int] = []
        self.changes: list[list[str]] = []
        self.rewritten: set[int] = set()
        self._bodies: list[bytes] = []
        self._cuts: list[Framed | None] = []
        # Where the spans, the resources and the scopes of each request begin.
        self._first: list[tuple[int, int, int]] = []

    def add(self, body: bytes) -> None:
        """Add a request."""
        number = len(self.faults)
        self.faults.append(None)
        self.received.append(0)
        self.changed.append(0)
        self.changes.append([])
        self._bodies.append(body)
        first_resource, first_scope = len(self.resources), len(self.scopes)
        self._first.append((len(self.spans), first_resource, first_scope))
        try:
            cut = framed(body, _MESSAGE, "spans")
        except OtlpDecodeError as error:
            self._cuts.append(None)
            self.faults[number] = str(error)
            return
        self._cuts.append(cut)
        if not cut.is_whole:
            self.rewritten.add(number)
        self.received[number] = len(cut.items)
        self.resources += cut.resources
        self.scopes += cut.scopes
        for span, resource, scope in zip(cut.items, cut.resource_of, cut.scope_of, strict=True):
            if max(len(span), len(cut.resources[resource]), len(cut.scopes[scope])) > ITEM_BYTES_MAX:
                reason = f"a span, its resource or its scope is larger than {ITEM_BYTES_MAX >> 20} MiB"
                self.too_large.append((number, reason))
                self.rewritten.add(number)
                continue
            self.spans.append(span)
            self.request_of.append(number)
            self.resource_of.append(first_resource + resource)
            self.scope_of.append(first_scope + scope)

    def make_readable(self, number: int, places: Places) -> None:
        """Leave out of spans of a request, their resources and their scopes what no parser takes."""
        parts = (
            (self.spans, places, SPAN),
            (self.resources, np.unique(np.array(self.resource_of, np.int64)[places]), RESOURCE),
            (self.scopes, np.unique(np.array(self.scope_of, np.int64)[places]), SCOPE),
        )
        for payloads, chosen, shape in parts:
            for place in chosen.tolist():
                found = readable(payloads[place], shape)
                if found is None or not found.is_changed:
                    continue
                payloads[place] = found.payload
                self.rewritten.add(number)
                self.changed[number] += 1
                if len(self.changes[number]) < _DESCRIBED_MAX:
                    what = _named_span(found.payload) if shape is SPAN else "a resource or a scope"
                    self.changes[number].append(f"{what}: {found.sentence()}")

    def body(self, number: int) -> bytes:
        """The body of a request with its spans, resources and scopes as they are here."""
        cut = self._cuts[number]
        if cut is None or number not in self.rewritten:
            return self._bodies[number]
        span, resource, scope = self._first[number]
        end = self._first[number + 1][0] if number + 1 < len(self._first) else len(self.spans)
        return replace(
            cut,
            items=self.spans[span:end],
            resources=self.resources[resource : resource + len(cut.resources)],
            scopes=self.scopes[scope : scope + len(cut.scopes)],
            scope_of=[place - scope for place in self.scope_of[span:end]],
            resource_of=[place - resource for place in self.resource_of[span:end]],
        ).assembled()

    def schemas(self, number: int) -> Iterator[list[bytes]]:
        """The schemas of a request's resources, and those of its scopes; to be replaced in place."""
        cut = self._cuts[number]
        if cut is not None:
            yield cut.resource_schemas
            yield cut.scope_schemas

    def refuse(self, number: int, sentence: str) -> None:
        """Take nothing of a request."""
        self.faults[number] = self.faults[number] or sentence

    def faulty(self) -> list[int]:
        """The requests that cannot be taken."""
        return [number for number, fault in enumerate(self.faults) if fault is not None]

    def chunks(self) -> Iterator[Places]:
        """The places of the spans in chunks; each is bounded, with the resources and scopes that its spans repeat."""
        if not self.spans:
            return
        sizes = np.fromiter(map(len, self.spans), np.int64, len(self.spans))
        for payloads, of_span in ((self.resources, self.resource_of), (self.scopes, self.scope_of)):
            sizes += np.fromiter(map(len, payloads), np.int64, len(payloads))[of_span]
        chunk_of = np.cumsum(sizes) // _CHUNK_BYTES
        yield from np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(chunk_of)) + 1)


def _named_span(payload: bytes) -> str:
    try:
        return f"span {Span.FromString(payload).name[:SHOWN_CHARS]!r}"
    except DecodeError:
        return "a span"
