"""Completeness of the evidence: whether cohorts have the sizes that the plan gives them, and what is missing, in
sentences. Pure.

Cohorts of other sizes mean that callers were lost on the way to one of them, and that no other figure can be trusted
(Fabijan et al., *Diagnosing Sample Ratio Mismatch*, KDD 2019). What is assigned is counted, and nothing else: calls, or
users where callers are assigned by user; those that met both cohorts belong to neither. A call that names no user may
be one of a user who is counted already, or of one more. So a split does not fit only if it would not whatever users
such calls are of.

With incomplete data the gate holds, and a comparison on a page gives no verdict: both by the same limits.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from telemetry.model.formatting import count, declared_percent, number, percent, turns
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.plan import AssignmentUnit, Completeness, Stage

# How likely a loss is found that is said to be detectable.
DETECTED: Final = 0.8


@dataclass(frozen=True, slots=True)
class AssignedUnits:
    """Units of one cohort that met no other: the number of known ones, and the number of calls that do not name their
    unit."""

    known: int = 0
    unnamed_calls: int = 0


@dataclass(frozen=True, slots=True)
class UnitCounts:
    """Units (calls or users) of both cohorts, and those that met both, which cannot be compared. A call that does not
    name its user counts as one."""

    units: int = 0
    contaminated: int = 0
    candidate: AssignedUnits = AssignedUnits()
    control: AssignedUnits = AssignedUnits()
    unnamed_calls: int = 0  # of all units

    @property
    def contaminated_share(self) -> float:
        """Units that met both cohorts / all units; 0 without units."""
        return self.contaminated / self.units if self.units else 0.0


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """The split of what is assigned, and how likely one so uneven is by chance alone: `p_value` whatever users unnamed
    calls are of, `p_of_known` without those calls. Below `limit` it does not fit.

    Of so many units, a loss of `detectable_loss` of the candidate's would have been found with a probability of 80 %,
    and so `detectable_control_loss` of the control's; None where not even the loss of all would have been.
    """

    candidate: AssignedUnits
    control: AssignedUnits
    unit: AssignmentUnit
    expected_share: float
    limit: float
    p_value: float
    p_of_known: float
    detectable_loss: float | None
    detectable_control_loss: float | None

    @property
    def units(self) -> int:
        """The number of known units."""
        return self.candidate.known + self.control.known

    @property
    def share(self) -> float:
        """The candidate's share of them."""
        return self.candidate.known / self.units

    @property
    def is_mismatch(self) -> bool:
        """Whether the split does not fit the plan."""
        return self.p_value < self.limit

    @property
    def is_open(self) -> bool:
        """Whether it depends on the users of unnamed calls."""
        return self.p_of_known < self.limit <= self.p_value

    def split(self, candidate: str) -> str:
        """The split in half a sentence, with the planned share."""
        known = " that are known" if self.candidate.unnamed_calls or self.control.unnamed_calls else ""
        return (
            f"{percent(self.share)} of {count(self.units, self.unit)}{known} are on {candidate}, "
            f"{declared_percent(self.expected_share)} planned"
        )


def sample_ratio(stage: Stage, counts: UnitCounts, unit: AssignmentUnit, limit: float) -> SampleRatio | None:
    """The split against the stage's shares (exact binomial test, two-sided); None if no unit is known.

    Raises ValueError for a stage without a control.
    """
    if not stage.has_control:
        raise ValueError(f"stage {stage.name} has no control")
    candidate, control = counts.candidate, counts.control
    if not candidate.known + control.known:
        return None
    expected = stage.share / (stage.share + stage.control_share)
    return SampleRatio(
        candidate,
        control,
        unit,
        expected,
        limit,
        _largest_p_value(candidate, control, expected),
        _p_value(candidate.known, candidate.known + control.known, expected),
        _detectable_loss(candidate, control, expected, limit),
        _detectable_loss(control, candidate, 1 - expected, limit),
    )


def _p_value(first_units: int, units: int, expected: float) -> float:
    # Imported where it is used: it takes half a second.
    from scipy import stats

    return float(stats.binomtest(first_units, units, expected).pvalue)


def _largest_p_value(first: AssignedUnits, second: AssignedUnits, expected: float) -> float:
    """The p-value at the number of users of the unnamed calls that fits best."""
    most_of_first = first.known + first.unnamed_calls
    if most_of_first <= expected * (most_of_first + second.known):
        return _p_value(most_of_first, most_of_first + second.known, expected)
    most = first.known + second.known + second.unnamed_calls
    if first.known >= expected * most:
        return _p_value(first.known, most, expected)
    return 1.0


def _detectable_loss(first: AssignedUnits, second: AssignedUnits, expected: float, limit: float) -> float | None:
    """The smallest share of the first's units whose loss leaves so few of them, among as many known units as there are,
    that the test detects it with a probability of DETECTED. None if it detects no loss."""
    from scipy import special

    units, unnamed = first.known + second.known, first.unnamed_calls

    def is_found(left: int) -> bool:
        return _p_value(left + unnamed, units + unnamed, expected) < limit

    if not is_found(0) or unnamed >= expected * (units + unnamed):
        return None
    detected, undetected = 0, math.ceil(expected * (units + unnamed)) - unnamed
    while undetected - detected > 1:
        middle = (detected + undetected) // 2
        detected, undetected = (middle, undetected) if is_found(middle) else (detected, middle)
    # The share of the first at which so few or fewer of them are left with that probability: the binomial distribution
    # by the incomplete beta function.
    share = 1 - float(special.betaincinv(units - detected, detected + 1, DETECTED))
    return (expected - share) / (expected * (1 - share))


def split_notes(ratio: SampleRatio | None, candidate: str, control: str, *, are_named: bool) -> list[str]:
    """Notes on what the split could not show; `are_named`: whether every turn names its unit."""
    if ratio is None:
        return [] if are_named else ["the split was not tested: users are assigned, and none is known"]
    if ratio.is_mismatch:
        return []
    unnamed = ratio.candidate.unnamed_calls + ratio.control.unnamed_calls
    if ratio.is_open:
        calls = count(unnamed, "call that names no user", "calls that name no user")
        return [f"the split is not known: {ratio.split(candidate)}, and {calls} could make up for that"]
    whatever = f", whatever users {number(unnamed)} unnamed calls are of" if unnamed else ""
    detectable = _detectable(ratio.detectable_loss, ratio.detectable_control_loss, candidate, control)
    return [f"in the split of {count(ratio.units, ratio.unit)}{whatever}, {detectable}"]


def _detectable(loss: float | None, control_loss: float | None, candidate: str, control: str) -> str:
    """Name the losses of either cohort's units that would have been found, in half a sentence."""
    losses = [
        f"{declared_percent(_rounded_up(lost))} of those on {cohort}"
        for lost, cohort in ((loss, candidate), (control_loss, control))
        if lost is not None
    ]
    if not losses:
        return "no loss would have been found, not even of all units of one cohort: they are too few"
    none = [cohort for lost, cohort in ((loss, candidate), (control_loss, control)) if lost is None]
    but = f", and of those on {none[0]} not even the loss of all" if none else ""
    probability = f"would have been found with a probability of {declared_percent(DETECTED)}"
    return f"a loss of {' or of '.join(losses)} {probability}{but}"


def _rounded_up(loss: float) -> float:
    """Round up to two digits: a stated loss is detected at least that often."""
    size = 10 ** (1 - math.floor(math.log10(loss)))
    return math.ceil(loss * size) / size


class CountedCohort(Protocol):
    """A cohort by its name and the share of its turns that is invalid."""

    @property
    def cohort(self) -> str:
        """Its name."""
        ...

    @property
    def invalid_share(self) -> float:
        """Invalid turns / all turns."""
        ...


def too_much_lost(lost: float | None, limits: Completeness, *, is_planned: bool) -> list[str]:
    """The sentence on missing telemetry; none if the loss is not known."""
    if lost is None or lost <= limits.telemetry_loss:
        return []
    limit = limits.telemetry_loss
    return [f"{percent(lost, limit)} of the telemetry is missing, {_allowed(limit, is_planned)}"]


def too_many_invalid(cohorts: Iterable[CountedCohort], limits: Completeness, *, is_planned: bool) -> list[str]:
    """The sentences on cohorts with too many invalid turns."""
    return [
        f"{percent(cohort.invalid_share, limits.invalid_turns)} of the turns of {cohort.cohort} are invalid, "
        f"{_allowed(limits.invalid_turns, is_planned)}: these turns say nothing about the service"
        for cohort in cohorts
        if cohort.invalid_share > limits.invalid_turns
    ]


def nameless(of: CohortTurns) -> str:
    """Describe how many turns of a cohort's calls name no cohort, as half a sentence."""
    every = of.turns + of.nameless_turns
    return f"{number(of.nameless_turns)} of {turns(every)} of calls of {of.cohort} name no cohort"


def too_many_nameless(cohorts: Iterable[CohortTurns], limits: Completeness) -> list[str]:
    """The sentences on cohorts that lack turns without a name: turns that broke down before a flag was evaluated, or
    whose slow stage, which would have named it, never arrived."""
    return [
        f"{nameless(cohort)} ({percent(cohort.nameless_share, limits.invalid_turns)}), "
        f"{_allowed(limits.invalid_turns, is_planned=True)}: let the span of every turn name it"
        for cohort in cohorts
        if cohort.nameless_share > limits.invalid_turns
    ]


def unassigned(of_turns: int, candidate: CohortTurns) -> tuple[str, float]:
    """Describe the turns without an answer of calls that name no cohort, as half a sentence, and return which share of
    the candidate's turns they are if all of them are its own."""
    sentence = f"{turns(of_turns)} of calls that name no cohort got no answer, and could all be of {candidate.cohort}"
    return sentence, of_turns / max(1, of_turns + candidate.turns)


def too_many_unassigned(of_turns: int, candidate: CohortTurns, limits: Completeness) -> list[str]:
    """The sentence on calls that failed before anything named their cohort, if they are too many: a candidate that
    refuses calls, or breaks down in them, may report none of them."""
    sentence, share = unassigned(of_turns, candidate)
    limit = limits.unassigned_turns
    if share <= limit:
        return []
    return [
        f"{sentence} ({percent(share, limit)} of its turns), {_allowed(limit, is_planned=True)}: let every call name "
        "its cohort, or, if calls fail alike in all cohorts, allow more with completeness.unassigned_turns"
    ]


def met_both(counts: UnitCounts, unit: str) -> str:
    """Describe how many units met both cohorts, as half a sentence."""
    calls = " and calls that name none" if counts.unnamed_calls else ""
    return f"{number(counts.contaminated)} of {count(counts.units, unit)}{calls} met both cohorts"


def too_many_contaminated(counts: UnitCounts, limits: Completeness, unit: str, *, is_planned: bool) -> list[str]:
    """The sentence on units that met both cohorts, if they are too many; `unit` is what is assigned to a cohort."""
    if counts.contaminated_share <= limits.contaminated_units:
        return []
    share = percent(counts.contaminated_share, limits.contaminated_units)
    return [
        f"{met_both(counts, unit)} ({share}), {_allowed(limits.contaminated_units, is_planned)}: let a {unit} keep its "
        "cohort"
    ]


def mismatch(ratio: SampleRatio | None, candidate: str) -> list[str]:
    """The sentence on sizes of the cohorts that do not fit the plan's share."""
    if ratio is None or not ratio.is_mismatch:
        return []
    return [
        f"sample-ratio mismatch: {ratio.split(candidate)} (p = {ratio.p_value:.1e}): find out where the others are lost"
    ]


def _allowed(limit: float, is_planned: bool) -> str:
    if is_planned:
        return f"and the plan allows {declared_percent(limit) if limit else 'none'}"
    return f"and at most {declared_percent(limit)} may be" if limit else "and none may be"
