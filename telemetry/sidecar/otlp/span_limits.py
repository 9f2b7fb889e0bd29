"""How much one span may say. What is beyond it is refused by name and not cut: a row is whole, or it is not there."""

from typing import Final

import numpy as np

from telemetry.sidecar.otlp.arrow_messages import ArrowArray
from telemetry.sidecar.otlp.span_columns import Mask, Places, any_of_list, lengths
from telemetry.sidecar.otlp.span_reading import ReadSpans

# Of one span: attributes, events and links each; and of an event, a link and a resource: attributes.
PARTS_MAX: Final = 1000
# Of all spans of one request together, where each span repeats the attributes of its resource.
REQUEST_PARTS_MAX: Final = 1_000_000
# Names of spans, events, scopes and attributes, and trace states; texts of attributes are as long as a span may be.
NAME_BYTES_MAX: Final = 4096
TOO_MANY_PARTS: Final = (
    f"the spans of the request have more than {REQUEST_PARTS_MAX} attributes, events and links together; "
    "send smaller batches"
)


def parts_of_spans(read: ReadSpans, resource_of: Places) -> Places:
    """How many attributes, events and links each span has, with all that its events, links and resource have."""
    found = lengths(read.spans["attributes"]) + lengths(read.resources["attributes"])[resource_of]
    for name, place in (("events", 2), ("links", 3)):
        lists = read.spans[name]
        found += lengths(lists)
        if len(lists.values):
            before = np.concatenate([[0], np.cumsum(lengths(lists.values.field(place)))])
            ends = np.cumsum(lengths(lists))
            found += before[ends] - before[ends - lengths(lists)]
    return found


def beyond_limits(read: ReadSpans, resource_of: Places, scope_of: Places) -> dict[str, Mask]:
    """The limits that a span is beyond, as a sentence that follows its name, and which spans are."""
    spans = read.spans
    events, links = spans["events"], spans["links"]
    of_event, of_link, of_resource = events.values.field(2), links.values.field(3), read.resources["attributes"]
    found: dict[str, Mask] = {
        f"it has more than {PARTS_MAX} {name}": lengths(spans[name]) > PARTS_MAX
        for name in ("attributes", "events", "links")
    }
    found[f"an event, a link or the resource of it has more than {PARTS_MAX} attributes"] = (
        any_of_list(events, lengths(of_event) > PARTS_MAX)
        | any_of_list(links, lengths(of_link) > PARTS_MAX)
        | (lengths(of_resource) > PARTS_MAX)[resource_of]
    )
    scopes = _long(read.scopes["name"]) | _long(read.scopes["version"])
    found[f"a name of it is longer than {NAME_BYTES_MAX} bytes"] = (
        _long(spans["name"])
        | _long(spans["trace_state"])
        | any_of_list(events, _long(events.values.field(1)))
        | any_of_list(links, _long(links.values.field(2)))
        | _has_long_key(spans["attributes"])
        | any_of_list(events, _has_long_key(of_event))
        | any_of_list(links, _has_long_key(of_link))
        | _has_long_key(of_resource)[resource_of]
        | scopes[scope_of]
    )
    return found


def _has_long_key(lists: ArrowArray) -> Mask:
    return any_of_list(lists, _long(lists.values.field(0)))


def _long(texts: ArrowArray) -> Mask:
    return lengths(texts) > NAME_BYTES_MAX
