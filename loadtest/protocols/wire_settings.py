"""Reads the settings of one wire (`[protocol]` in a scenario file, `--protocol-option`): all faults at once. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pydantic

from loadtest.errors import UsageError
from loadtest.protocols.json_fields import as_object


class WireSettings(pydantic.BaseModel):
    """The settings of one wire. Names that a wire does not know are faults, so that a typing error is found."""

    # A command line cannot say that 5 is a text.
    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, coerce_numbers_to_str=True
    )


S = TypeVar("S", bound=WireSettings)


def read_settings(kind: type[S], settings: Mapping[str, Any], wire: str, *, known_faults: Sequence[str] = ()) -> S:
    """Return the validated settings. Raises UsageError with one line for each fault; no line shows a value.

    `known_faults` are shown with those that are found here. Where there are none here, they are the caller's to refuse.
    """
    try:
        return kind.model_validate(dict(settings))
    except pydantic.ValidationError as error:
        lines = [_line(fault, kind, wire) for fault in error.errors(include_url=False, include_input=False)]
        raise UsageError("\n".join([*known_faults, *lines])) from None


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with the members of `over` in it; objects are merged, anything else replaces what was there."""
    found = dict(base)
    for key, value in over.items():
        inner, before = as_object(value), as_object(found.get(key))
        found[key] = merged(dict(before), dict(inner)) if inner is not None and before is not None else value
    return found


def refuse(faults: Sequence[str]) -> None:
    """Raise UsageError with one line for each fault, if there is any."""
    if faults:
        raise UsageError("\n".join(faults))


def _line(fault: Any, kind: type[WireSettings], wire: str) -> str:
    name = ".".join(str(part) for part in fault["loc"]) or "the settings"
    if fault["type"] == "extra_forbidden":
        return f"{wire}: there is no setting {name!r}; known: {', '.join(sorted(kind.model_fields))}"
    reason = fault["msg"].removeprefix("Value error, ")
    return f"{wire}: the setting {name!r} is not valid: {reason[:1].lower()}{reason[1:]}"
