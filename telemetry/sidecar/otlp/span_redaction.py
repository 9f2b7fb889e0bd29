"""Takes out of the spans of a group what may not be stored, with their resources and scopes."""

import numpy as np

from telemetry.sidecar.otlp.span_columns import Places
from telemetry.sidecar.otlp.span_groups import SpanGroup
from telemetry.sidecar.otlp.span_reading import ReadSpans
from telemetry.sidecar.privacy.detection import spans_to_clean
from telemetry.sidecar.privacy.requests import Redactor, clean_schema


def redact_spans(group: SpanGroup, read: ReadSpans, places: Places, redactor: Redactor) -> bool:
    """Redact the spans at these places of a group, which were read; says whether any of their messages is another
    now."""
    if not len(places):
        return False
    scopes, scope_of = np.unique(np.array(group.scope_of, np.int64)[places], return_inverse=True)
    frameworks = [redactor.framework(group.scopes[place]) for place in scopes.tolist()]
    names = sorted(set(frameworks))
    framework_of = np.array([names.index(framework) for framework in frameworks], np.int64)[scope_of]
    rewritten: set[int] = set()
    sizes = [len(group.spans[place]) for place in places.tolist()]
    found = spans_to_clean(read, sizes, names, framework_of, redactor.rules)
    for row in np.flatnonzero(found).tolist():
        place = int(places[row])
        cleaned = redactor.span(group.spans[place], names[framework_of[row]])
        if cleaned is not group.spans[place]:
            group.spans[place] = cleaned
            rewritten.add(group.request_of[place])
    requests = np.array(group.request_of, np.int64)[places]
    for payloads, clean, of_span in (
        (group.resources, redactor.resource, group.resource_of),
        (group.scopes, redactor.scope, group.scope_of),
    ):
        chosen, first = np.unique(np.array(of_span, np.int64)[places], return_index=True)
        for place, row in zip(chosen.tolist(), first.tolist(), strict=True):
            cleaned = clean(payloads[place])
            if cleaned != payloads[place]:
                payloads[place] = cleaned
                rewritten.add(int(requests[row]))
    group.rewritten |= rewritten
    for number in np.unique(requests).tolist():
        for schemas in group.schemas(number):
            cleaned_schemas = [*map(clean_schema, schemas)]
            if cleaned_schemas != schemas:
                schemas[:] = cleaned_schemas
                group.rewritten.add(number)
    return bool(rewritten)
