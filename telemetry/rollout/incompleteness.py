"""What has to be complete before turns of two cohorts are compared, and is not, in sentences. Pure.

The gate holds for it, and a comparison on a page claims nothing: both by the same limits.
"""

from collections.abc import Iterable
from typing import Protocol

from telemetry.model.formatting import count, declared_percent, number, percent, turns
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.plan import Completeness
from telemetry.rollout.sample_ratio import SampleRatio, UnitCounts


class CountedCohort(Protocol):
    """What is asked of a cohort: its name, and which share of its turns is invalid."""

    @property
    def cohort(self) -> str:
        """Its name."""
        ...

    @property
    def invalid_share(self) -> float:
        """Invalid turns / all turns."""
        ...


def too_much_lost(lost: float | None, limits: Completeness, *, is_planned: bool) -> list[str]:
    """The telemetry that is missing; nothing where that is not known."""
    if lost is None or lost <= limits.telemetry_loss:
        return []
    limit = limits.telemetry_loss
    return [f"{percent(lost, limit)} of the telemetry is missing, {_allowed(limit, is_planned)}"]


def too_many_invalid(cohorts: Iterable[CountedCohort], limits: Completeness, *, is_planned: bool) -> list[str]:
    """The cohorts of which too many turns are invalid."""
    return [
        f"{percent(each.invalid_share, limits.invalid_turns)} of the turns of {each.cohort} are invalid, "
        f"{_allowed(limits.invalid_turns, is_planned)}: these turns say nothing about the service"
        for each in cohorts
        if each.invalid_share > limits.invalid_turns
    ]


def nameless(of: CohortTurns) -> str:
    """How many turns of a cohort's calls name no cohort, as half a sentence."""
    every = of.turns + of.nameless_turns
    return f"{number(of.nameless_turns)} of {turns(every)} of calls of {of.cohort} name no cohort"


def too_many_nameless(cohorts: Iterable[CohortTurns], limits: Completeness) -> list[str]:
    """The cohorts to which turns are missing that name none: those that broke down before a flag was asked, or whose
    slow stage, which would have named it, never came."""
    return [
        f"{nameless(each)} ({percent(each.nameless_share, limits.invalid_turns)}), "
        f"{_allowed(limits.invalid_turns, is_planned=True)}: let the span of every turn name it"
        for each in cohorts
        if each.nameless_share > limits.invalid_turns
    ]


def met_both(counts: UnitCounts, unit: str) -> str:
    """How many units met both cohorts, as half a sentence."""
    calls = " and calls that name none" if counts.unnamed_calls else ""
    return f"{number(counts.contaminated)} of {count(counts.units, unit)}{calls} met both cohorts"


def too_many_contaminated(counts: UnitCounts, limits: Completeness, unit: str, *, is_planned: bool) -> list[str]:
    """The units that met both cohorts, where they are too many; `unit` is what is assigned to a cohort."""
    if counts.contaminated_share <= limits.contaminated_units:
        return []
    share = percent(counts.contaminated_share, limits.contaminated_units)
    return [
        f"{met_both(counts, unit)} ({share}), {_allowed(limits.contaminated_units, is_planned)}: let a {unit} keep its "
        "cohort"
    ]


def mismatch(ratio: SampleRatio | None, candidate: str) -> list[str]:
    """Sizes of the cohorts that do not fit the plan's share."""
    if ratio is None or not ratio.is_mismatch:
        return []
    return [
        f"sample-ratio mismatch: {ratio.split(candidate)} (p = {ratio.p_value:.1e}): find out where the others are lost"
    ]


def _allowed(limit: float, is_planned: bool) -> str:
    if is_planned:
        return f"and the plan allows {declared_percent(limit) if limit else 'none'}"
    return f"and at most {declared_percent(limit)} may be" if limit else "and none may be"
