"""Results as JSON: durations in seconds, mappings as objects, sequences as lists. Pure."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def json_of(value: Any, *names: str) -> dict[str, Any]:
    """The named fields of a value, or all of a dataclass. A duration `p50_ns` becomes `p50_s`, in seconds."""
    chosen = names or tuple(field.name for field in dataclasses.fields(value))
    return dict(_entry(name, getattr(value, name)) for name in chosen)


def value_json(value: Any) -> Any:
    """A value as JSON; one with an `as_object` says itself how."""
    if (own_form := getattr(value, "as_object", None)) is not None:
        return own_form()
    if dataclasses.is_dataclass(value):
        return json_of(value)
    if isinstance(value, Mapping):
        return {key: value_json(member) for key, member in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [value_json(member) for member in value]
    return value


def seconds(value_ns: float | None) -> float | None:
    """A duration in seconds; null where it is not known."""
    return None if value_ns is None else value_ns / 1e9


def _entry(name: str, value: Any) -> tuple[str, Any]:
    if not name.endswith("_ns") or name.endswith("_unix_ns"):
        return name, value_json(value)
    return f"{name[:-3]}_s", [seconds(element) for element in value] if isinstance(value, Sequence) else seconds(value)
