"""What a run declared of the instrument's own error when it began."""

from typing import Final

from telemetry.model import semconv
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection
from telemetry.store.run_spans import RUN_IDS, run_spans

_CALIBRATED: Final = semconv.RUN_PREFIX + "calibrated_to_ms"


def instrument_error_ns(connection: StoreConnection, f: Filter) -> float | None:
    """The bound of the instrument's error in voice-to-voice, in ns, as the filter's run cites it from the calibration
    of its machine; None where it cites none, or where the filter asks for no run."""
    if f.run_id is None:
        return None
    bounds_ns: list[float] = []
    for span in run_spans(connection):
        if any(span.attributes.get(name) == f.run_id for name in RUN_IDS):
            bounds_ns += _milliseconds(span.attributes.get(_CALIBRATED))
    return max(bounds_ns, default=None)


def _milliseconds(value: object) -> list[float]:
    """The declared bound in ns; nothing where none was declared or it is no bound."""
    try:
        bound_ms = float(str(value))
    except ValueError:
        return []
    return [bound_ms * 1e6] if 0.0 <= bound_ms < 1e6 else []
