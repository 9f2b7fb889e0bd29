"""Values in JSON by their paths, and messages with places for values. Pure.

`$.event.items[0]['the text']` is a path: a subset of JSONPath (RFC 9535). Names, positions (negative ones count from
the end) and `[*]`, which is every member; no filters, and no `..`.

`{model}` is a place for a value of the call, `{$.id}` for one of the message answered. A text that is nothing but one
place takes the value as it is: a number stays a number, and a member whose value is missing is left out.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

_STEP: Final = re.compile(
    r"""\.(?P<name>[A-Za-z_\u0080-\uffff][\w\u0080-\uffff-]*)"""
    r"""|\[(?:(?P<index>-?\d{1,9})|(?P<every>\*)|'(?P<single>[^']*)'|"(?P<double>[^"]*)")\]"""
    r"""|\.(?P<star>\*)"""
)


class _Every:
    """The step to every member."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """One path, as it was written and as the steps to take."""

    text: str
    steps: tuple[str | int | _Every, ...]

    @property
    def is_single(self) -> bool:
        """Whether the path leads to one value at most."""
        return _EVERY not in self.steps

    def first(self, value: object) -> Any:
        """Return the first value that the path leads to, or None."""
        member = value
        for step in self.steps:
            if isinstance(step, str) and isinstance(member, dict):
                member = member.get(step)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            elif isinstance(step, _Every):
                return next(iter(self.all(value)), None)
            else:
                member = next(iter(_members(member, step)), None)
        return member

    def all(self, value: object) -> Sequence[Any]:
        """Return all values that the path leads to, in order."""
        values: list[object] = [value]
        for step in self.steps:
            values = [inner for outer in values for inner in _members(outer, step)]
            if not values:
                break
        return values


def parse_path(text: str) -> JsonPath:
    """Parse a path. Raises ValueError with one sentence."""
    if not text.startswith("$"):
        raise ValueError(f"a path begins with $, such as $.type; this one is {text!r}")
    steps: list[str | int | _Every] = []
    at = 1
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise ValueError(
                f"the path {text!r} cannot be read from {text[at:]!r} on; write $.name, [0], [*] or ['name']"
            )
        kind, value = str(step.lastgroup), str(step.group(str(step.lastgroup)))
        steps.append(int(value) if kind == "index" else _EVERY if kind in ("every", "star") else value)
        at = step.end()
    return JsonPath(text, tuple(steps))


_EVERY: Final = _Every()


def _members(value: object, step: str | int | _Every) -> Sequence[object]:
    if isinstance(value, dict):
        members = cast(dict[str, object], value)
        if isinstance(step, _Every):
            return list(members.values())
        return [members[step]] if isinstance(step, str) and step in members else []
    if isinstance(value, list):
        items = cast(list[object], value)
        if isinstance(step, _Every):
            return items
        return [items[step]] if isinstance(step, int) and -len(items) <= step < len(items) else []
    return []


PLACE: Final = re.compile(r"\{(\$[^{}]*|[a-z_]+)\}")
# What every message may contain.
OF_CALL: Final = frozenset({"model", "language", "traceparent", "turn", "text", "played_ms"})
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
