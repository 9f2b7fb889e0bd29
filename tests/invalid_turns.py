"""Turns that are invalid, checked by the definition: each reason has a figure next to it that is beyond its limit."""

from collections.abc import Callable
from typing import Final

from telemetry.model.turns import Turn

MS: Final = 1_000_000
CLOCK_STEP: Final = "clock step"  # no matter of a limit
# The limits as documented, never as the code has them.
_SHOWN_BY: Final[dict[str, Callable[[Turn], bool]]] = {
    "frame lateness": lambda turn: (turn.frame_lateness_worst_ns or 0) > 60 * MS,
    "drift": lambda turn: (turn.drift_worst_ns or 0) > 20 * MS,
}


def assert_reasons_are_shown(turn: Turn) -> None:
    """Fail for an invalid turn that does not show why it is, measured by the default limits."""
    assert (turn.outcome == "invalid") == bool(turn.invalid_reasons)
    for reason in turn.invalid_reasons:
        if reason != CLOCK_STEP:
            assert _SHOWN_BY[reason](turn), (reason, turn)
