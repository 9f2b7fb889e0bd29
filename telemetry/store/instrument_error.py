"""What a run declared of the instrument's own error when it began."""

from typing import Final

import orjson

from telemetry.model import semconv
from telemetry.store.answers import Filter
from telemetry.store.snapshot import Connection, rows

_CALIBRATED: Final = semconv.RUN_PREFIX + "calibrated_to_ms"
_RUN_IDS: Final = (semconv.RUN_PREFIX + "run_id", semconv.RUN_PREFIX + "id", "run_id")


def instrument_error_ns(connection: Connection, f: Filter) -> float | None:
    """The bound of the instrument's error in voice-to-voice, in ns, as the filter's run cites it from the calibration
    of its machine; None where it cites none, or where the filter asks for no run."""
    if f.run_id is None:
        return None
    bounds_ns: list[float] = []
    for row in rows(connection, "SELECT attributes FROM spans WHERE name = ?", [semconv.SPAN_RUN]):
        attributes = orjson.loads(row["attributes"])
        if any(attributes.get(name) == f.run_id for name in _RUN_IDS):
            bounds_ns += _milliseconds(attributes.get(_CALIBRATED))
    return max(bounds_ns, default=None)


def _milliseconds(value: object) -> list[float]:
    """The declared bound in ns; nothing where none was declared or it is no bound."""
    try:
        bound_ms = float(str(value))
    except ValueError:
        return []
    return [bound_ms * 1e6] if 0.0 <= bound_ms < 1e6 else []
