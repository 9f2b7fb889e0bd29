"""Advice from a calibration on the number of processes for a load."""

from typing import Any

import pytest

from loadtest.calibration.json_object import calibration_object
from loadtest.reports.calibration_citing import CALLERS_A_PROCESS, advice, automatic_processes
from tests.unit.loadtest.calibration.calibration_material import MACHINE, MS, calibration, step

ELSEWHERE = MACHINE | {"cpu": "other"}


def stored(*, reached: bool = True, most: int = 2) -> dict[str, Any]:
    """One process is good for 10 callers, two are for 20; 40 are too many for both."""
    steps = [step(10), step(20, error_ns=2 * MS), *([step(20, processes=2)] if most == 2 else [])]
    steps += [step(40, processes=most, error_ns=2 * MS)] if reached else []
    return calibration_object(calibration(*steps))


def test_more_callers_than_one_process_was_good_for_want_two() -> None:
    assert advice(stored(), MACHINE, 11, 1) == (
        "11 callers want 2 processes on this machine: one process was found good for 10 callers (2026-11-21);"
        " give --processes 2"
    )


@pytest.mark.parametrize(("users", "processes"), [(1, 1), (10, 1), (11, 2), (20, 2), (20, 8)])
def test_well_calibrated_load_gets_no_advice(users: int, processes: int) -> None:
    assert advice(stored(), MACHINE, users, processes) is None


def test_load_beyond_any_calibrated_processes_is_named() -> None:
    assert advice(stored(), MACHINE, 21, 2) == (
        "21 callers are more than this machine was found good for with any number of processes (20 on 2026-11-21):"
        " use fewer callers, or several machines"
    )
    assert advice(stored(reached=False), MACHINE, 21, 2) is None  # nobody tried


def test_calibration_of_two_processes_holds_for_no_single_one() -> None:
    alone = calibration_object(calibration(step(10, error_ns=2 * MS), step(10, processes=2)))
    assert advice(alone, MACHINE, 1, 1) == (
        "1 caller wants 2 processes on this machine: one process was found good for no load (2026-11-21);"
        " give --processes 2"
    )


def test_no_calibration_of_this_machine_advises_nothing() -> None:
    assert advice(None, MACHINE, 1000, 1) is None
    assert advice(stored(), ELSEWHERE, 1000, 1) is None
    none_good = calibration_object(calibration(step(4, error_ns=2 * MS)))
    assert advice(none_good, MACHINE, 1, 1) is None


@pytest.mark.parametrize(
    ("users", "most", "processes"),
    [(10, 8, 1), (11, 8, 2), (20, 8, 2), (21, 8, 3), (41, 8, 5), (41, 3, 3), (1, 8, 1)],
)
def test_auto_processes_follow_calibration_and_scale_beyond_it(users: int, most: int, processes: int) -> None:
    assert automatic_processes(stored(), MACHINE, users, most) == processes


@pytest.mark.parametrize(
    ("users", "processes"),
    [(1, 1), (CALLERS_A_PROCESS, 1), (CALLERS_A_PROCESS + 1, 2), (10 * CALLERS_A_PROCESS, 4)],
)
@pytest.mark.parametrize("known", [None, calibration_object(calibration(step(10), machine=ELSEWHERE))])
def test_auto_without_a_calibration_goes_by_the_callers_alone(
    users: int, processes: int, known: dict[str, Any] | None
) -> None:
    assert automatic_processes(known, MACHINE, users, 4) == processes
