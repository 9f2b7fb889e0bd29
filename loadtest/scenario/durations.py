"""Durations as people type them."""

import math
from typing import Final

from loadtest.errors import UsageError

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration_s(text: str) -> float:
    """Seconds of "90", "90s", "2m", "1h30m" or "500ms". Raises UsageError."""
    rest, total = text.strip().lower(), 0.0
    if not rest:
        raise UsageError("a duration is empty: give one such as 60s, 2m or 1h30m")
    if rest.replace(".", "", 1).isdigit():
        return _positive(float(rest), text)
    while rest:
        digits = rest[: len(rest) - len(rest.lstrip("0123456789."))]
        rest = rest[len(digits) :]
        unit = "ms" if rest.startswith("ms") else rest[:1]
        if unit not in _UNITS_S or not digits or digits.count(".") > 1 or digits == ".":
            raise UsageError(f"{text!r} is no duration: give one such as 60s, 2m or 1h30m")
        total += float(digits) * _UNITS_S[unit]
        rest = rest[len(unit) :]
    return _positive(total, text)


def _positive(seconds: float, text: str) -> float:
    if not math.isfinite(seconds) or seconds <= 0:
        raise UsageError(f"{text!r} is no duration: it must be more than 0")
    return seconds
