"""What a verdict says of its checks, for people. Pure."""

from telemetry.model.formatting import turns
from telemetry.rollout.checks import CheckResult


def bounds(result: CheckResult) -> str:
    """Both figures, their difference and its bounds."""
    check = result.check
    return (
        f"{check.format(result.candidate)} against {check.format(result.control)}, a difference of "
        f"{check.format_difference(result.difference)} "
        f"({check.format_difference(result.lower)} to {check.format_difference(result.upper)})"
    )


def worse(result: CheckResult) -> str:
    """Of a check that rolls back."""
    return f"{result.check.sentence} is worse: {bounds(result)}"


def within(result: CheckResult) -> str:
    """Of a check that lets a candidate pass."""
    return f"{result.check.sentence} is within {result.check.format_margin()}: {bounds(result)}"


def undecided(result: CheckResult) -> str:
    """Of a check that holds."""
    if result.status == "unknown":
        return f"{result.check.sentence} cannot be compared: {result.reason}"
    needed = result.turns_needed
    more = result.reason or (
        f"about {turns(needed)} more of the candidate"
        if needed is not None
        else "more turns alone are unlikely to decide it: the difference is about half the margin"
    )
    margin = result.check.format_margin()
    return f"{result.check.sentence} is not shown to be within {margin} yet: {bounds(result)}; {more}"
