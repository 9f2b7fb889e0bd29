"""The values of an OTLP/JSON request, checked for their types."""

import re
from typing import Any, Final

from telemetry.sidecar.otlp.attributes import OtlpDecodeError

_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}")


def mapping(value: object, what: str) -> dict[str, Any]:
    """Return a JSON object, empty if it is absent. Raises OtlpDecodeError for another type."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise OtlpDecodeError(f"{what}: expected an object")
    return value  # pyright: ignore[reportUnknownVariableType] - keys in JSON are strings


def items(value: object, what: str) -> list[Any]:
    """Return a JSON array, empty if it is absent. Raises OtlpDecodeError for another type."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise OtlpDecodeError(f"{what}: expected an array")
    return value  # pyright: ignore[reportUnknownVariableType] - its items are checked when they are read


def objects(value: object, what: str) -> list[dict[str, Any]]:
    """Return a JSON array of objects. Raises OtlpDecodeError for another type."""
    return [mapping(item, what) for item in items(value, what)]


def text(value: object, what: str) -> str:
    """Return a JSON string, empty if it is absent. Raises OtlpDecodeError for another type."""
    return "" if value is None else text_of(value, what)


def integer(value: object, what: str, minimum: int, maximum: int) -> int:
    """Return a JSON integer; proto3 writes 64-bit integers as decimal strings. Raises OtlpDecodeError."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        number_ = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number_ = value
    else:
        raise OtlpDecodeError(f"{what}: expected an integer")
    if not minimum <= number_ <= maximum:
        raise OtlpDecodeError(f"{what}: {number_} is out of range")
    return number_


def number(value: object, what: str) -> float:
    """Return a JSON number; proto3 writes NaN and infinities as strings. Raises OtlpDecodeError."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise OtlpDecodeError(f"{what}: expected a number")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise OtlpDecodeError(f"{what}: expected a number") from None


def text_of(value: object, what: str) -> str:
    """Return a JSON string. Raises OtlpDecodeError for another type."""
    if not isinstance(value, str):
        raise OtlpDecodeError(f"{what}: expected str")
    return value


def flag(value: object, what: str) -> bool:
    """Return a JSON true or false. Raises OtlpDecodeError for another type."""
    if not isinstance(value, bool):
        raise OtlpDecodeError(f"{what}: expected bool")
    return value
