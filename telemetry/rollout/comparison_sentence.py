"""What a comparison of two cohorts comes to, in a sentence that says which margins it goes by. Pure.

It is not a verdict: where a rollout's plan covers the cohorts, its log holds the one that counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from telemetry.model.formatting import count, percent
from telemetry.rollout import sentences
from telemetry.rollout.cohort_comparison import CohortComparison

ComparisonState = Literal["worse", "within", "open"]
_WORDS: Final[dict[ComparisonState, str]] = {
    "worse": "{candidate} is worse than {control}",
    "within": "{candidate} is within every margin that could be compared with {control}",
    "open": "it is not decided whether {candidate} is worse than {control}",
}


@dataclass(frozen=True, slots=True)
class ComparisonSentence:
    """`sentence` holds the first reason, `reasons` the others; `basis` says by which margins."""

    state: ComparisonState
    sentence: str
    reasons: tuple[str, ...]
    basis: str


def comparison_sentence(found: CohortComparison, limited: str | None = None) -> ComparisonSentence:
    """The comparison in a sentence; `limited` says why nothing may be claimed of the service, if nothing may.

    As in a rollout, what is incomplete comes before any figure: nothing is claimed then.
    """
    state, reasons = _state(found, limited)
    first, *others = reasons
    words = _WORDS[state].format(candidate=found.candidate.cohort, control=found.control.cohort)
    return ComparisonSentence(state, f"{words}: {first}", tuple(others), _basis(found))


def _state(found: CohortComparison, limited: str | None) -> tuple[ComparisonState, Sequence[str]]:
    if incomplete := [*([] if limited is None else [limited]), *incompleteness(found)]:
        return "open", incomplete
    if worse := [sentences.worse(each) for each in found.results if each.status == "worse"]:
        return "worse", worse
    by_status = {
        status: [sentences.undecided(each) for each in found.results if each.status == status]
        for status in ("open", "unknown")
    }
    primary = found.results[0].status if found.results else "unknown"
    if by_status["open"] or primary == "unknown":
        return "open", [*by_status["open"], *by_status["unknown"]] or ["no figure could be compared"]
    # What cannot be compared is said, and holds nothing up: this is not a gate.
    within = [sentences.within(each) for each in found.results if each.status == "within"]
    return "within", [*within[:1], *by_status["unknown"]]


def incompleteness(found: CohortComparison) -> list[str]:
    """A sentence for everything that has to be complete, and is not."""
    limits, lost = found.limits, found.telemetry_lost
    both = (found.candidate, found.control)
    lacks = [f"no turn of {each.cohort} is among these" for each in both if not each.turns]
    if lost is not None and lost > limits.telemetry_loss:
        lacks.append(f"{percent(lost)} of the telemetry is missing, {_at_most(limits.telemetry_loss)}")
    lacks += [
        f"{percent(each.invalid_share)} of the turns of {each.cohort} are invalid, {_at_most(limits.invalid_turns)}: "
        "the generator was the limit, not the service"
        for each in both
        if each.invalid_share > limits.invalid_turns
    ]
    ratio = found.sample_ratio
    if ratio is not None and ratio.p_value < limits.sample_ratio_p:
        lacks.append(
            f"sample-ratio mismatch: {percent(ratio.share)} of the callers are on {found.candidate.cohort}, where "
            f"{percent(ratio.expected_share)} are planned (p = {ratio.p_value:.1e}): find out where the others are lost"
        )
    return lacks


def _at_most(limit: float) -> str:
    return f"and at most {percent(limit)} may be" if limit else "and none may be"


def _basis(found: CohortComparison) -> str:
    if found.plan is not None:
        return f"by the margins of the rollout {found.plan}"
    shown = "; ".join(f"{each.row.name} {each.row.margin}" for each in found.figures if each.decides)
    counted = count(found.deciding, "figure")
    return (
        f"no rollout's plan covers these cohorts: the margins of the {counted} are assumed ({shown}), so this is a "
        "comparison of these turns, no verdict to act on"
        if shown
        else "no rollout's plan covers these cohorts: this is no verdict to act on"
    )
