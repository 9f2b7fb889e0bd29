"""Which looks of a rollout a link means; the looks are made by hand."""

import pytest

from dashboard.rollout_choice import RolloutChoice, rollout_choice_of
from telemetry.model.formatting import NS_PER_S
from telemetry.rollout.history import Decision
from telemetry.rollout.progress import Funnel, FunnelPoint, LoggedVerdict, RolloutProgress

HOUR_NS = 3600 * NS_PER_S
NEWEST_UNIX_NS = 1_800_000_000 * NS_PER_S
# How old each look was at the newest one, its stage and its decision.
LOOKS: tuple[tuple[float, str, Decision], ...] = (
    (200, "5-percent", "hold"),
    (30, "5-percent", "promote"),
    (24, "25-percent", "hold"),
    (2, "25-percent", "hold"),
    (1, "25-percent", "promote"),
    (0, "100-percent", "hold"),
)


def progress() -> RolloutProgress:
    verdicts = [
        LoggedVerdict(NEWEST_UNIX_NS - round(age_h * HOUR_NS), stage, None, {"verdict": decision})
        for age_h, stage, decision in LOOKS
    ]
    return RolloutProgress(
        newest=verdicts[-1],
        stages=(),
        checks=(),
        slices=(),
        funnel=Funnel(
            tuple(FunnelPoint(each.at_unix_ns, each.stage, each.decision, None, None, None) for each in verdicts)
        ),
        turns_needed=None,
        turns_per_hour=None,
        ready_unix_ns=None,
        changes=tuple(verdicts[place] for place in (5, 4, 2, 1, 0)),
    )


def ages_h(choice: RolloutChoice) -> tuple[list[float], list[float]]:
    """How old, in hours, the looks of the chart and those of the history are."""
    found = choice.narrowed(progress())
    assert found.newest == progress().newest, "what the newest look says stands"
    of_chart, of_history = (
        [(NEWEST_UNIX_NS - each.at_unix_ns) / HOUR_NS for each in looks]
        for looks in (found.funnel.points, found.changes)
    )
    return of_chart, of_history


@pytest.mark.parametrize(
    ("link", "of_chart", "of_history"),
    [
        ({}, [200, 30, 24, 2, 1, 0], [0, 1, 24, 30, 200]),
        ({"looks": "1h"}, [1, 0], [0, 1]),
        ({"looks": "1d"}, [24, 2, 1, 0], [0, 1, 24]),
        ({"looks": "7d"}, [30, 24, 2, 1, 0], [0, 1, 24, 30]),
        ({"at_stage": "25-percent"}, [24, 2, 1], [1, 24]),
        ({"decision": "promote"}, [30, 1], [1, 30]),
        ({"looks": "1d", "at_stage": "25-percent", "decision": "hold"}, [24, 2], [24]),
        ({"at_stage": "another"}, [], []),
    ],
)
def test_the_looks_that_a_link_means(link: dict[str, str], of_chart: list[float], of_history: list[float]) -> None:
    choice, faults = rollout_choice_of(link)
    assert faults == []
    assert ages_h(choice) == (of_chart, of_history)
    assert choice.narrows is bool(link)


def test_a_value_that_cannot_be_meant_is_left_out_and_named() -> None:
    choice, faults = rollout_choice_of({"looks": "2h", "decision": "go", "rollout": "streaming", "run": "r-1"})
    assert choice == RolloutChoice(rollout="streaming")
    assert faults == [
        "the link asks for looks '2h', not one of 1h, 1d, 7d: left out",
        "the link asks for decision 'go', not one of promote, hold, roll_back: left out",
    ]
