"""Messages with places to fill in: `{model}` is a value of the call, `{$.id}` one of the message answered. Pure.

A text that is nothing but one place takes the value as it is: a number stays a number, and a member whose value is
missing is left out.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from loadtest.protocols.declared.jsonpath import parse_path

PLACE: Final = re.compile(r"\{(\$[^{}]*|[a-z_]+)\}")
# What every message may contain.
OF_CALL: Final = frozenset({"model", "voice", "instructions", "language", "traceparent", "turn", "text", "played_ms"})
AUDIO: Final = "audio"
OF_FRAME: Final = frozenset({"sequence", "timestamp_ms"})
_MISSING: Final = object()


def places(template: object) -> Iterator[str]:
    """Yield the places of a template, in the order in which they are written."""
    if isinstance(template, str):
        yield from PLACE.findall(template)
    elif isinstance(template, dict):
        for value in cast(dict[str, object], template).values():
            yield from places(value)
    elif isinstance(template, list):
        for value in cast(list[object], template):
            yield from places(value)


def check_template(template: object, allowed: frozenset[str], *, paths: bool = False) -> None:
    """Raise ValueError for a place that cannot be filled in there."""
    for place in places(template):
        if place.startswith("$"):
            if not paths:
                raise ValueError(f"{{{place}}} needs a message that is being answered, and there is none here")
            parse_path(place)
        elif place not in allowed:
            raise ValueError(f"there is no {{{place}}} here; known: {', '.join(sorted(allowed))}")


def filled(template: object, values: Mapping[str, Any], answered: object = None) -> Any:
    """Return the template with every place filled in."""

    def value_of(place: str) -> Any:
        return parse_path(place).first(answered) if place.startswith("$") else values.get(place)

    result = _filled(template, value_of)
    return None if result is _MISSING else result


def _filled(template: object, value_of: Callable[[str], Any]) -> Any:
    if isinstance(template, str):
        whole = PLACE.fullmatch(template)
        if whole is not None:
            value = value_of(whole.group(1))
            return _MISSING if value is None else value
        return PLACE.sub(lambda place: _text(value_of(place.group(1))), template)
    if isinstance(template, dict):
        members = {key: _filled(value, value_of) for key, value in cast(dict[str, object], template).items()}
        return {key: value for key, value in members.items() if value is not _MISSING}
    if isinstance(template, list):
        values = [_filled(value, value_of) for value in cast(list[object], template)]
        return [value for value in values if value is not _MISSING]
    return template


def _text(value: object) -> str:
    return "" if value is None else str(value)
