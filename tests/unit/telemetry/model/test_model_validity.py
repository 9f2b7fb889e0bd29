"""Turns that were not said as recorded are told apart from those that a fault of ours spoiled."""

import pytest

from telemetry.model.generator_health import invalid_text, is_not_as_recorded


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ((), False),
        (("frame lateness",), True),
        (("drift",), True),
        (("clock step",), False),
        (("internal error", "EADDRNOTAVAIL"), False),
        (("clock step", "drift"), True),
    ],
)
def test_a_turn_with_late_frames_or_drift_was_not_as_recorded(reasons: tuple[str, ...], expected: bool) -> None:
    assert is_not_as_recorded(reasons) is expected


@pytest.mark.parametrize(
    ("not_as_recorded", "faults", "by_reason", "text"),
    [
        (0, 0, {}, ""),
        (4, 0, {"frame lateness": 3, "drift": 2}, "4 not said as recorded (frame lateness 3, drift 2)"),
        (0, 1, {"clock step": 1}, "1 by a fault of the generator (clock step 1)"),
        (0, 2, {}, "2 by faults of the generator"),  # an older reporter gives no reason
        (1, 0, {"drift": 1, "clock step": 1}, "1 not said as recorded (drift 1; also clock step 1)"),
        (
            1_204,
            2,
            {"drift": 1_204, "clock step": 2},
            "1,204 not said as recorded (drift 1,204), 2 by faults of the generator (clock step 2)",
        ),
    ],
)
def test_the_text_counts_turns_and_names_reasons(
    not_as_recorded: int, faults: int, by_reason: dict[str, int], text: str
) -> None:
    assert invalid_text(not_as_recorded, faults, by_reason) == text
