"""What makes a turn invalid: that it was not said as recorded, or a fault of ours. Pure.

How wide the bounds of a figure are (telemetry.model.bounds) never does.
"""

from collections.abc import Collection, Mapping
from typing import Final

from telemetry.model.formatting import number

FRAME_LATENESS: Final = "frame lateness"  # beyond generator_health.FRAME_LATENESS_LIMIT_NS
DRIFT: Final = "drift"
# The reasons of turns that were not said as recorded. Every other reason is a fault of ours.
NOT_AS_RECORDED: Final = (FRAME_LATENESS, DRIFT)


def is_not_as_recorded(invalid_reasons: Collection[str]) -> bool:
    """Whether a turn with these reasons was not said as recorded, whatever else went wrong."""
    return any(reason in NOT_AS_RECORDED for reason in invalid_reasons)


def invalid_text(not_as_recorded: int, faults: int, by_reason: Mapping[str, int]) -> str:
    """Invalid turns by what made them so: `4 not said as recorded (frame lateness 3, drift 2), 1 by a fault of the
    generator (clock step 1)`; empty where there are none. A turn may have several reasons."""
    parts: list[str] = []
    recorded = {name: n for name, n in by_reason.items() if name in NOT_AS_RECORDED}
    others = {name: n for name, n in by_reason.items() if name not in NOT_AS_RECORDED}
    if not_as_recorded:
        also = f"; also {_named(others)}" if others and not faults else ""
        parts.append(f"{number(not_as_recorded)} not said as recorded ({_named(recorded)}{also})")
    if faults:
        reasons = f" ({_named(others)})" if others else ""
        parts.append(f"{number(faults)} by {'a fault' if faults == 1 else 'faults'} of the generator{reasons}")
    return ", ".join(parts)


def _named(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number(n)}" for name, n in reasons.items())
