"""The line on the Cohorts page that says whether the split fits the plan, and which loss it would have shown."""

import numpy as np
import pytest

from dashboard.cohort_parts import sample_ratio
from telemetry.model.durations import Duration
from telemetry.rollout.cohort_comparison import CohortSize, ComparedCohorts, compare_cohorts
from telemetry.rollout.plan import Stage
from telemetry.rollout.sample_ratio import AssignedUnits, UnitCounts
from tests.rollout_cohorts import cohort, plan

RNG = np.random.default_rng(1)
BOTH = cohort("streaming", 200, RNG), cohort("stable", 600, RNG)
BY_USER = plan(unit="user")


def line(candidate: AssignedUnits, control: AssignedUnits, stage: Stage | None = BY_USER.stages[0]) -> str:
    unnamed = candidate.unnamed_calls + control.unnamed_calls
    units = UnitCounts(candidate.known + control.known + unnamed, 0, candidate, control, unnamed)
    sizes = CohortSize("streaming", 200, 200, 0, 31), CohortSize("stable", 600, 600, 0, 93)
    found = ComparedCohorts(BY_USER, *BOTH, sizes, 0.0, is_planned=True, stage=stage, units=units)
    return sample_ratio(compare_cohorts(found))


def test_a_split_that_fits_says_which_loss_it_would_have_shown() -> None:
    text = line(AssignedUnits(250), AssignedUnits(750))
    assert "25 % of 1,000 users are on the candidate, 25 % planned at stage canary; p = 1 (exact binomial test)" in text
    assert "the split fits the plan; in the split of 1,000 users, a loss of " in text
    assert text.endswith("of those on the control would have been found with a probability of 80 %.</span></li>")


@pytest.mark.parametrize(
    ("candidate", "control", "words"),
    [
        (AssignedUnits(150), AssignedUnits(750), "the split does not fit the plan: callers are lost"),
        (AssignedUnits(150, 90), AssignedUnits(750), "the split is not known: 16.7 % of 900 users that are known"),
        (
            AssignedUnits(0, 200),
            AssignedUnits(0, 600),
            "31 callers on streaming and 93 callers on stable; users are assigned, and none is known",
        ),
    ],
)
def test_a_split_that_does_not_fit_or_is_not_known_is_named(
    candidate: AssignedUnits, control: AssignedUnits, words: str
) -> None:
    assert words in line(candidate, control)


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (None, "these turns may be of several stages, with other shares each"),
        (Stage("all", 1.0, 0.0, Duration(), 1), "there is no split to compare with at stage all"),
    ],
)
def test_what_has_no_planned_shares_is_not_tested(stage: Stage | None, words: str) -> None:
    assert words in line(AssignedUnits(250), AssignedUnits(750), stage)
