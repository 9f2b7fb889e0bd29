"""What a run may say of its own error, in every case."""

from typing import Any

import pytest

from loadtest.calibration.json_object import calibration_object
from loadtest.reports.calibration_citing import BINDING, choose, cite, rounded_up_ms
from tests.unit.loadtest.calibration.calibration_material import MACHINE, MS, calibration, step

BESIDE = ", beside the error of the clips' speech bounds"


def stored(*, reached: bool = True, **changes: Any) -> dict[str, Any]:
    """A calibration with trust up to 40 callers; the larger load is worse there."""
    steps = [step(10, error_ns=31_000), step(40, error_ns=312_000)]
    steps += [step(80, error_ns=2 * MS)] if reached else []
    return calibration_object(calibration(*steps, **changes))


@pytest.mark.parametrize(
    ("users", "sentence", "error_ms", "callers"),
    [
        (1, "calibrated to ±0.04 ms at 10 callers on 2026-11-21" + BESIDE, 0.04, 10),
        (10, "calibrated to ±0.04 ms at 10 callers on 2026-11-21" + BESIDE, 0.04, 10),
        (11, "calibrated to ±0.32 ms at 40 callers on 2026-11-21" + BESIDE, 0.32, 40),
        (40, "calibrated to ±0.32 ms at 40 callers on 2026-11-21" + BESIDE, 0.32, 40),
    ],
)
def test_a_run_cites_the_smallest_trustworthy_load_that_covers_it(
    users: int, sentence: str, error_ms: float, callers: int
) -> None:
    found = cite(stored(), MACHINE, users)
    assert (found.state, found.sentence, found.error_ms, found.callers) == ("calibrated", sentence, error_ms, callers)


def test_beyond_the_ceiling_no_bound_is_claimed() -> None:
    found = cite(stored(), MACHINE, 41)
    assert found.state == "beyond"
    assert found.sentence == "beyond the calibrated ceiling of 40 callers (2026-11-21)"
    assert found.error_ms is None


def test_a_ceiling_that_was_not_reached_asks_for_more() -> None:
    found = cite(stored(reached=False), MACHINE, 41)
    assert found.state == "not reached"
    assert found.sentence == "beyond the 40 callers that were calibrated on 2026-11-21: run voiceprobe calibrate"


@pytest.mark.parametrize("name", BINDING)
def test_another_machine_or_engine_is_reported(name: str) -> None:
    found = cite(stored(machine=MACHINE | {name: "other"}), MACHINE, 1)
    assert (found.state, found.error_ms) == ("elsewhere", None)
    assert found.sentence == f"calibrated on another machine ({name} differs): run voiceprobe calibrate"


def test_without_a_calibration_nothing_is_claimed() -> None:
    found = cite(None, MACHINE, 1)
    assert (found.state, found.sentence, found.error_ms) == ("none", "not calibrated: run voiceprobe calibrate", None)


def test_a_calibration_without_a_trustworthy_load_is_no_bound() -> None:
    found = cite(calibration_object(calibration(step(4, error_ns=2 * MS))), MACHINE, 1)
    assert (found.state, found.error_ms) == ("beyond", None)
    assert found.sentence == "no load was trustworthy when this machine was calibrated on 2026-11-21"


def test_the_newest_of_this_machine_is_chosen_before_a_newer_one_of_another() -> None:
    old, new = stored(started_unix_ns=1), stored(started_unix_ns=2)
    foreign = stored(started_unix_ns=3, machine=MACHINE | {"cpu": "other"})
    assert choose([new, foreign, old], MACHINE) is new
    assert choose([foreign], MACHINE) is foreign
    assert choose([], MACHINE) is None


@pytest.mark.parametrize(("seconds", "shown"), [(0.00004, 0.04), (0.000041, 0.05), (0.0, 0.0), (0.00099, 0.99)])
def test_a_bound_is_never_rounded_towards_zero(seconds: float, shown: float) -> None:
    assert rounded_up_ms(seconds) == shown


def test_a_load_that_wants_more_processes_is_not_claimed_for_fewer() -> None:
    steps = [step(10), step(20, processes=2, error_ns=70_000), step(40, processes=2, error_ns=2 * MS)]
    value = calibration_object(calibration(*steps))
    few = cite(value, MACHINE, 11, 1)
    assert (few.state, few.error_ms, few.processes) == ("beyond", None, 2)
    assert few.sentence == "11 callers in one process were not calibrated on 2026-11-21: they want 2 processes"
    enough = cite(value, MACHINE, 11, 2)
    assert (enough.state, enough.error_ms, enough.callers, enough.processes) == ("calibrated", 0.07, 20, 2)
    # A step of one process holds for two that have a core each, not for three on two cores.
    assert cite(value, MACHINE, 10, 2).error_ms == 0.04
    assert cite(value, MACHINE, 10, 3).state == "beyond"
