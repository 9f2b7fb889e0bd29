"""How many processes a calibration tries, and what it concludes."""

import pytest

from loadtest.calibration.calibration import CalibrationStep, ProcessorUsage, measure_step
from loadtest.calibration.json_object import calibration_object
from loadtest.calibration.process_counts import (
    ProcessRange,
    more_processes,
    process_ranges,
    ranges_sentence,
)
from tests.unit.loadtest.calibration.calibration_material import MS, calibration, step, truth, turn


def failed(callers: int, *, processes: int = 1, cpu: float | None = 0.95) -> CalibrationStep:
    return step(callers, error_ns=2 * MS, processes=processes, cpu=cpu)


@pytest.mark.parametrize(
    ("steps", "most", "more"),
    [
        ([failed(8)], 4, 2),
        ([failed(8, cpu=None)], 4, 2),  # not known is no reason against it
        ([failed(8)], 1, None),
        ([failed(8, processes=3)], 3, None),
        ([step(4), failed(8, processes=2)], 8, 3),  # never fewer than before, nor as many
        ([step(3), failed(8)], 8, 3),  # 3 callers each
        ([step(3), failed(30)], 8, 8),
        ([step(2), failed(3)], 8, 2),
        ([failed(1)], 8, None),  # one caller has one process
        ([failed(8, cpu=0.3)], 8, None),  # its core was not taken
        ([step(8)], 8, None),
        ([step(8, lags_ns=[6 * MS] * 10)], 8, None),  # the endpoint was the limit
    ],
)
def test_more_processes_are_tried_where_their_core_was_taken(
    steps: list[CalibrationStep], most: int, more: int | None
) -> None:
    assert more_processes(steps, most) == more


def test_a_step_that_only_lost_turns_wants_no_more_processes() -> None:
    turns = [turn(number, call=number % 2) for number in range(1, 121)]
    truths = {each["response_id"]: each for each in (truth(number) for number in range(1, 131))}
    lost = measure_step(2, 1, turns, truths, ProcessorUsage(0.95, 0.2, 12_000.0))
    assert lost.verdict == "not trustworthy"
    assert more_processes([lost], 4) is None


def test_each_number_of_processes_has_the_largest_load_that_wanted_it() -> None:
    steps = [step(2), step(4), failed(8), step(8, processes=2), step(12, processes=2), failed(16, processes=2)]
    ranges = process_ranges(steps)
    assert ranges == [ProcessRange(1, 4), ProcessRange(2, 12)]
    assert ranges_sentence(ranges, failed=16) == (
        "up to 4 callers: one process; up to 12 callers: 2 processes; 16 are not trustworthy here"
    )
    assert ranges_sentence(ranges[:1], failed=None) == "up to 4 callers: one process"
    assert ranges_sentence([], failed=4) == ""
    assert process_ranges([failed(4)]) == []
    assert ranges_sentence([ProcessRange(1, 1200)], failed=1600) == (
        "up to 1,200 callers: one process; 1,600 are not trustworthy here"
    )


def test_the_object_has_the_processes_of_each_load_and_the_sentence() -> None:
    steps = [step(2), failed(4), step(4, processes=2), failed(8, processes=2)]
    value = calibration_object(calibration(*steps))
    assert [each["processes"] for each in value["steps"]] == [1, 1, 2, 2]
    assert value["processes"] == [{"processes": 1, "callers_to": 2}, {"processes": 2, "callers_to": 4}]
    assert value["sentence"] == (
        "up to 2 callers: one process; up to 4 callers: 2 processes; 8 are not trustworthy here"
    )
    assert value["ceiling"]["processes"] == 2
    assert calibration_object(calibration(failed(4)))["sentence"] is None
