"""What a run declared of the instrument's own error when it began."""

from typing import Final

from telemetry.model import semconv
from telemetry.model.formatting import NS_PER_MS
from telemetry.model.stated_error import calibrated_bound_ms
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection
from telemetry.store.run_spans import RUN_IDS, run_spans

_CALIBRATED: Final = semconv.RUN_PREFIX + "calibrated_to_ms"


def instrument_error_ns(connection: StoreConnection, f: Filter) -> float | None:
    """The bound of the instrument's error in voice-to-voice, in ns, as the filter's run cites it from the calibration
    of its machine; None where it cites none, or where the filter asks for no run."""
    if f.run_id is None:
        return None
    bounds_ms = (
        calibrated_bound_ms(span.attributes.get(_CALIBRATED))
        for span in run_spans(connection)
        if any(span.attributes.get(name) == f.run_id for name in RUN_IDS)
    )
    return max((bound_ms * NS_PER_MS for bound_ms in bounds_ms if bound_ms is not None), default=None)
