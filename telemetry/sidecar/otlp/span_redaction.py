"""Takes out of the spans of a group what may not be stored, with their resources and scopes."""

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model import semconv
from telemetry.sidecar.otlp.arrow_messages import compute
from telemetry.sidecar.otlp.span_columns import Mask, any_of_list, offsets_of
from telemetry.sidecar.otlp.span_groups import SpanGroup
from telemetry.sidecar.otlp.span_reading import ReadChunk
from telemetry.sidecar.privacy.detection import Detected, detect
from telemetry.sidecar.privacy.requests import Redactor, clean_schema


def redact_spans(group: SpanGroup, chunk: ReadChunk, redactor: Redactor) -> Mask | None:
    """Redact the spans of a chunk, in their group. Gives which attributes of all spans were left out; None when more
    of their messages has changed, so that they are to be read again."""
    if not len(chunk.places):
        return np.zeros(0, np.bool_)
    of_scope = [redactor.framework(group.scopes[place]) for place in chunk.scopes.tolist()]
    frameworks = sorted(set(of_scope))
    framework_of = np.array([frameworks.index(each) for each in of_scope], np.int64)[chunk.scope_of]
    places = chunk.places.tolist()
    sizes = [len(group.spans[place]) for place in places]
    detected = detect(chunk.read, sizes, frameworks, framework_of, redactor.rules)
    to_clean = detected.to_clean
    if detected.left_out.any():
        # Of a turn, its row is made of all its attributes.
        in_part = any_of_list(chunk.read.spans["attributes"], detected.left_out)
        is_turn = compute.equal(chunk.read.spans["name"], semconv.SPAN_TURN).to_numpy(zero_copy_only=False)
        to_clean = to_clean | (in_part & is_turn)
        _leave_out(group, chunk, detected, np.flatnonzero(in_part & ~to_clean).tolist())
    is_changed = _redact_around(group, chunk, redactor)
    for row in np.flatnonzero(to_clean).tolist():
        place = places[row]
        cleaned = redactor.span(group.spans[place], frameworks[framework_of[row]])
        if cleaned is not group.spans[place]:
            group.spans[place] = cleaned
            group.rewritten.add(group.request_of[place])
            is_changed = True
    return None if is_changed else detected.left_out


def _leave_out(group: SpanGroup, chunk: ReadChunk, detected: Detected, rows: list[int]) -> None:
    """Leave attributes out of the messages of the spans in these rows."""
    offsets = offsets_of(chunk.read.spans["attributes"]).tolist()
    left_out = detected.left_out
    for row in rows:
        first, place = offsets[row], int(chunk.places[row])
        span = Span.FromString(group.spans[place])
        for number in np.flatnonzero(left_out[first : offsets[row + 1]])[::-1].tolist():
            del span.attributes[number]
        group.spans[place] = span.SerializeToString()
        group.rewritten.add(group.request_of[place])


def _redact_around(group: SpanGroup, chunk: ReadChunk, redactor: Redactor) -> bool:
    """Redact resources, scopes and schemas; says whether a resource or a scope is another now."""
    is_changed = False
    requests = chunk.request_of
    for payloads, clean, chosen, of_span in (
        (group.resources, redactor.resource, chunk.resources, chunk.resource_of),
        (group.scopes, redactor.scope, chunk.scopes, chunk.scope_of),
    ):
        for number, place in enumerate(chosen.tolist()):
            cleaned = clean(payloads[place])
            if cleaned != payloads[place]:
                payloads[place] = cleaned
                group.rewritten.add(int(requests[np.argmax(of_span == number)]))
                is_changed = True
    for number in np.unique(requests).tolist():
        for schemas in group.schemas(number):
            cleaned_schemas = [*map(clean_schema, schemas)]
            if cleaned_schemas != schemas:
                schemas[:] = cleaned_schemas
                group.rewritten.add(number)
    return is_changed
