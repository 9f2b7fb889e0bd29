"""What a comparison of two cohorts comes to, in a sentence that says which margins it goes by. Pure.

It is not a verdict: where a rollout's plan covers the cohorts, its log holds the one that counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from telemetry.model.formatting import count
from telemetry.rollout import sentences
from telemetry.rollout.cohort_comparison import CohortComparison
from telemetry.rollout.incompleteness import mismatch, too_many_contaminated, too_many_invalid, too_much_lost

ComparisonState = Literal["worse", "within", "open"]
_WORDS: Final[dict[ComparisonState, str]] = {
    "worse": "{candidate} is worse than {control}",
    "within": "{candidate} is within every margin that could be compared with {control}",
    "open": "it is not decided whether {candidate} is worse than {control}",
}


@dataclass(frozen=True, slots=True)
class ComparisonSentence:
    """`sentence` holds the first reason, `reasons` the others; `basis` says by which margins. Where something that has
    to be complete is not (`is_incomplete`), nothing is claimed, whatever the figures."""

    state: ComparisonState
    sentence: str
    reasons: tuple[str, ...]
    basis: str
    is_incomplete: bool = False


def comparison_sentence(found: CohortComparison, limited: str | None = None) -> ComparisonSentence:
    """The comparison in a sentence; `limited` says why nothing may be claimed of the service, if nothing may.

    As in a rollout, what is incomplete comes before any figure: nothing is claimed then.
    """
    incomplete = [*([] if limited is None else [limited]), *_incomplete(found)]
    state, reasons = ("open", incomplete) if incomplete else _state(found)
    first, *others = reasons
    words = _WORDS[state].format(candidate=found.candidate.cohort, control=found.control.cohort)
    return ComparisonSentence(state, f"{words}: {first}", tuple(others), _basis(found), bool(incomplete))


def _state(found: CohortComparison) -> tuple[ComparisonState, Sequence[str]]:
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


def _incomplete(found: CohortComparison) -> list[str]:
    limits, is_planned = found.limits, found.plan is not None
    both = (found.candidate, found.control)
    return [
        *(f"no turn of {each.cohort} is among these" for each in both if not each.turns),
        *too_much_lost(found.telemetry_lost, limits, is_planned=is_planned),
        *too_many_invalid(both, limits, is_planned=is_planned),
        *too_many_contaminated(found.units, limits, found.unit_name, is_planned=is_planned),
        *mismatch(found.sample_ratio, found.candidate.cohort),
    ]


def _basis(found: CohortComparison) -> str:
    if found.plan is not None:
        return f"by the margins of the rollout {found.plan}"
    shown = "; ".join(f"{each.row.name} {each.row.margin}" for each in found.figures if each.decides)
    counted = count(found.deciding, "figure")
    return (
        f"no rollout's plan covers these cohorts: the margins of the {counted} are assumed ({shown}), so this is a "
        "comparison of these turns, not a verdict to act on"
        if shown
        else "no rollout's plan covers these cohorts: this is not a verdict to act on"
    )
