"""Finds values in JSON by paths such as `$.event.items[0]['the text']`: a subset of JSONPath (RFC 9535). Pure.

Names, positions (negative ones count from the end) and `[*]`, which is every member; no filters, and no `..`.
"""

import re
from collections.abc import Sequence
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
        found = value
        for step in self.steps:
            if isinstance(step, str) and isinstance(found, dict):
                found = found.get(step)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            elif isinstance(step, _Every):
                return next(iter(self.all(value)), None)
            else:
                found = next(iter(_members(found, step)), None)
        return found

    def all(self, value: object) -> Sequence[Any]:
        """Return all values that the path leads to, in order."""
        found: list[object] = [value]
        for step in self.steps:
            found = [inner for each in found for inner in _members(each, step)]
            if not found:
                break
        return found


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
