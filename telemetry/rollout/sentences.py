"""Sentences of a verdict about its checks. Pure.

A quantile is judged by a share of turns, so the share comes first; the quantiles are for reading.
"""

from typing import Final

from telemetry.model.formatting import count, declared_percent, number, percent, signed_difference, turns
from telemetry.rollout.checks import BeyondShares, CheckResult

# Of so many turns beyond a threshold, this share beyond the margin as well says that hardly any lie between.
_FEWEST_AROUND_GAP: Final = 20
_IN_A_GAP: Final = 0.9
_EXCESS_COUNTED: Final = ", values counted that it lacks more of than the control,"


def explanation(allowed: float) -> str:
    """Explain the share of a quantile check where people read shares; `allowed` is 0.05 for p95."""
    may, statistic = declared_percent(allowed), declared_percent(1 - allowed).removesuffix(" %")
    return (
        f"At most {may} of the control's turns take longer than its p{statistic}: a candidate passes once it is shown "
        f"that fewer than {may} of its turns take longer than that by more than the margin. Differences of quantiles "
        "have a 95 % interval that holds for one look and decides nothing; all other bounds hold at every look."
    )


def figures(result: CheckResult) -> str:
    """Format both figures, their difference and its bounds."""
    check, shares = result.check, result.shares
    control = check.format(result.control)
    if shares is None:
        both, bounds = f"{check.format(result.candidate)} against {control}, a difference of ", _bounds(result)
        return f"{both}{check.format_difference(result.difference)}{bounds}"
    if result.candidate is None:
        unanswered = f"{declared_percent(shares.allowed)} of its turns or more were not answered"
        return f"the candidate has no {check.statistic}, because {unanswered} (the control's is {control})"
    difference = f"{check.format_difference(result.difference)}{_bounds(result)}"
    return f"{check.statistic} {check.format(result.candidate)} against {control}, {difference}"


def _bounds(result: CheckResult) -> str:
    """The bounds of the difference in parentheses, as far as there are any."""
    both = result.lower, result.upper
    text = interval(*(None if bound is None else result.check.format_difference(bound) for bound in both))
    return f" ({text})" if text else ""


def interval(lower: str | None, upper: str | None) -> str:
    """Formatted bounds, with their unit once; either may be missing if that side has no bound."""
    if lower is None:
        return "" if upper is None else f"at most {upper}"
    if upper is None:
        return f"at least {lower}"
    return f"{lower.removesuffix(upper[upper.find(' ') :]) if ' ' in upper else lower} to {upper}"


def beyond(estimate: float, upper: float, allowed: float) -> str:
    """The share that decides a check of a quantile, with its bound."""
    return f"{percent(estimate, allowed)}, at most {percent(upper, allowed)}"


def worse(result: CheckResult) -> str:
    """The sentence on a check that rolls back."""
    return f"{result.check.sentence} is worse: {above_control(result)}"


def above_control(result: CheckResult) -> str:
    """The figures behind a roll back, and those of both cohorts."""
    shares, margin = result.shares, result.check.format_margin()
    if shares is None:
        return f"{figures(result)}, margin {margin}{_used(result)}"
    counted = _EXCESS_COUNTED if _missing(result) else ""
    return (
        f"{percent(shares.beyond)} of the candidate's turns took longer than the control's "
        f"{result.check.statistic}, where {percent(shares.control)} of the control's did "
        f"({signed_difference(shares.lower, 'share')} at least), and {percent(shares.beyond_margin, shares.allowed)}"
        f"{counted} took longer by more than {margin}; {figures(result)}{_used(result)}"
    )


def within(result: CheckResult) -> str:
    """The sentence on a check that a candidate passes."""
    return f"{result.check.sentence} is within {result.check.format_margin()}: {against_margin(result)}{_used(result)}"


def undecided(result: CheckResult) -> str:
    """The sentence on a check that holds."""
    if result.status == "unknown":
        return f"{result.check.sentence} cannot be compared: {result.reason}"
    needed = result.turns_needed
    more = result.reason or (
        f"about {count(needed, 'more turn')} of the candidate"
        if needed is not None
        else "more turns alone are unlikely to show it"
    )
    margin = result.check.format_margin()
    return (
        f"{result.check.sentence} is not shown to be within {margin} yet: {against_margin(result)}{_used(result)}; "
        f"{more}{_gap(result)}"
    )


def against_margin(result: CheckResult) -> str:
    """The figures behind a promotion, and those of both cohorts."""
    shares = result.shares
    if shares is None:
        return figures(result)
    counted = _EXCESS_COUNTED if _missing(result) else ""
    may = declared_percent(shares.allowed)
    return (
        f"{percent(shares.beyond_margin, shares.allowed)} of the candidate's turns (at most "
        f"{percent(shares.upper, shares.allowed)}){counted} took longer than the control's {result.check.statistic} by "
        f"more than {result.check.format_margin()}, where {may} may; {figures(result)}"
    )


def used(turns_with_value: int, eligible: int) -> str:
    """Return the number of turns behind a figure if some have no value: `1,519 of 1,813 turns`; else nothing."""
    return f"{number(turns_with_value)} of {turns(eligible)}" if turns_with_value < eligible else ""


def _used(result: CheckResult) -> str:
    of = used(result.turns, result.eligible)
    return f"; taken over {of} of the candidate" if of else ""


def _missing(result: CheckResult) -> int:
    return result.eligible - result.turns


def _gap(result: CheckResult) -> str:
    """Return where hardly any turn lies between the threshold and the margin beyond it, so that even a candidate like
    the control has about as many turns beyond the margin as may be."""
    shares = result.shares
    if shares is None or _missing(result) or not _is_in_a_gap(shares, result.turns):
        return ""
    statistic, margin = result.check.statistic, result.check.format_margin()
    return (
        f"; hardly any of its turns lie between the control's {statistic} and {margin} beyond it: the margin is "
        "narrow, or lies in a gap, so choose a wider one, or another statistic"
    )


def _is_in_a_gap(shares: BeyondShares, size: int) -> bool:
    is_many = shares.beyond * size >= _FEWEST_AROUND_GAP
    return is_many and shares.lower <= 0 and shares.beyond_margin >= _IN_A_GAP * shares.beyond
