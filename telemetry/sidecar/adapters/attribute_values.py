"""Values of foreign attributes, converted to the type of a column; any other value is unknown."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from telemetry.model.turn_spans import SpanRow
from telemetry.sidecar.adapters.frameworks import Read, Unit

_NS_IN: Final[dict[Unit, int]] = {"s": 1_000_000_000, "ms": 1_000_000, "ns": 1}
_EVENT: Final = "event:"
# A longer latency means that the clock was set, or that the unit is another one.
_LONGEST_LATENCY_NS: Final = 86_400 * 1_000_000_000
_LARGEST_COUNT: Final = 2**53
# Values that mean a missing name.
_NO_NAME: Final = frozenset({"", "unknown", "none"})


def stated(read: Read, span: SpanRow) -> object:
    """The value of the first of the attributes or events that the span has; None if it has none of them."""
    for name in read.attributes:
        if name.startswith(_EVENT):
            stamps = [event.unix_ns for event in span.events if event.name == name.removeprefix(_EVENT)]
            if stamps:
                return min(stamps) - span.start_unix_ns
            continue
        attribute, _, key = name.partition("#")
        value = span.attributes.get(attribute)
        if value is not None and key:
            held = json_value(value)
            value = held.get(key) if isinstance(held, Mapping) else None
        if value is not None:
            return value
    return None


def latency_ns(value: object, unit: Unit) -> int | None:
    """A duration in ns."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    if abs(value) > _LONGEST_LATENCY_NS / _NS_IN[unit]:
        return None
    return value * _NS_IN[unit] if isinstance(value, int) else round(value * _NS_IN[unit])


def is_no_duration(value: object, unit: Unit) -> bool:
    """Return whether a number cannot be a duration: NaN, an infinity, or more than a day."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and latency_ns(value, unit) is None


def count(value: object) -> int | None:
    """A count, 0 or more."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_COUNT:
        return None
    return value


def name(value: object) -> str | None:
    """A name that is not empty."""
    return value if isinstance(value, str) and value.strip().lower() not in _NO_NAME else None


def json_value(value: object) -> Any:
    """Return the value of a JSON text; None if it is not JSON."""
    try:
        return msgspec.json.decode(value) if isinstance(value, (str, bytes)) else None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def first_partial_unix_ns(events: object) -> int | None:
    """Return the time of the first partial transcript in a JSON list of {type, received_at in s}."""
    held = json_value(events)
    partials: Iterable[Any] = held if isinstance(held, list) else ()
    moments = [
        event["received_at"]
        for event in partials
        if isinstance(event, Mapping) and event.get("type") == "interim_transcript" and _is_moment(event)
    ]
    return round(min(moments) * 1e9) if moments else None


def _is_moment(event: Mapping[str, object]) -> bool:
    at_s = event.get("received_at")
    return isinstance(at_s, (int, float)) and not isinstance(at_s, bool) and 0 < at_s < _LARGEST_COUNT / 1e6
