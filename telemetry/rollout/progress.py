"""Where a rollout is, from the verdicts that its log keeps: stages, bounds over time, and when it may go on. Pure.

Figures are those of the verdicts (`verdict_document`): nothing is estimated anew, so a page and `rollout check` agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from telemetry.model.formatting import DASH, NS_PER_S, figure, signed_difference, significant
from telemetry.rollout.checks import CheckResult, SliceResult
from telemetry.rollout.history import Decision, Look, RolloutHistory
from telemetry.rollout.plan import RolloutPlan, slice_name
from telemetry.rollout.traffic import forecast
from telemetry.rollout.verdict_document import check_object

StageState = Literal["done", "here", "ahead", "rolled_back"]
_HOUR_NS: Final = 3600 * NS_PER_S
# Beyond that, a rate says nothing of when.
_FARTHEST_NS: Final = 365 * 24 * _HOUR_NS


@dataclass(frozen=True, slots=True)
class LoggedVerdict:
    """A verdict of the log: when, at which stage, and its object."""

    at_unix_ns: int
    stage: str
    since_unix_ns: int | None
    verdict: Mapping[str, Any]

    @property
    def decision(self) -> Decision:
        """What it says."""
        return self.verdict["verdict"]

    @property
    def candidate_turns(self) -> int:
        """How many turns of the candidate it is over."""
        return self.verdict["cohorts"]["candidate"]["turns"]


@dataclass(frozen=True, slots=True)
class StageProgress:
    """A stage: the candidate's share of callers, and how far the rollout is with it."""

    name: str
    share: float
    state: StageState


@dataclass(frozen=True, slots=True)
class FunnelPoint:
    """The primary check at one look; in its unit, seconds for durations. None where it could not be compared."""

    at_unix_ns: int
    stage: str
    decision: Decision
    difference: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class CheckRow:
    """A check of a verdict as people read it."""

    name: str
    status: str
    candidate: str
    control: str
    difference: str
    bounds: str
    margin: str
    turns_needed: int | None
    reason: str | None
    difference_value: float | None
    lower: float | None
    upper: float | None
    margin_value: float
    turns: int = 0  # of the candidate, those with a value


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """A rollout as its newest verdict leaves it.

    `turns_needed` are those of the candidate that the verdict waits for, None where that cannot be said;
    `turns_per_hour` is how fast they came at this stage; `ready_unix_ns` is when they will be there at that rate.
    `changes` are the verdicts at which the decision or the stage changed, the newest first. `cause` is the one that
    rolled back, where the newest only says that it did.
    """

    newest: LoggedVerdict
    stages: tuple[StageProgress, ...]
    checks: tuple[CheckRow, ...]
    slices: tuple[CheckRow, ...]
    funnel: tuple[FunnelPoint, ...]
    margin: float | None
    unit: str
    turns_needed: int | None
    turns_per_hour: float | None
    ready_unix_ns: int | None
    changes: tuple[LoggedVerdict, ...]
    cause: LoggedVerdict | None = None


def rollout_progress(plan: RolloutPlan | None, verdicts: Sequence[LoggedVerdict], stage: str) -> RolloutProgress | None:
    """The progress at `stage`, where the rollout is now; None before the first verdict. Without a plan that can be read
    the stages are those that the verdicts name."""
    if not verdicts:
        return None
    newest = verdicts[-1]
    found = newest.verdict
    primary = found["checks"][0] if found["checks"] else None
    pace = _turns_per_ns(verdicts, stage)
    needed = found["turns_needed"]
    ready = None
    if pace and needed and newest.decision == "hold" and newest.stage == stage:
        wait_ns = needed / pace
        ready = newest.at_unix_ns + round(wait_ns) if wait_ns < _FARTHEST_NS else None
    return RolloutProgress(
        newest=newest,
        stages=_stages(plan, verdicts, stage),
        checks=tuple(logged_row(each, _name(each, plan)) for each in found["checks"]),
        slices=tuple(logged_row(each, slice_name(each["dimension"], each["value"])) for each in found["slices"]),
        funnel=tuple(_point(each) for each in verdicts),
        margin=None if primary is None else primary["margin"],
        unit="ratio" if primary is None else primary["unit"],
        turns_needed=needed,
        turns_per_hour=None if pace is None else pace * _HOUR_NS,
        ready_unix_ns=ready,
        changes=tuple(reversed(_changes(verdicts))),
        cause=cause_of(verdicts),
    )


def cause_of(verdicts: Sequence[LoggedVerdict]) -> LoggedVerdict | None:
    """The verdict that rolled back, where the newest only says that it did; else None."""
    if not verdicts or verdicts[-1].decision != "roll_back":
        return None
    first = next(each for each in verdicts if each.decision == "roll_back")
    return None if first is verdicts[-1] else first


def _stages(plan: RolloutPlan | None, verdicts: Sequence[LoggedVerdict], stage: str) -> tuple[StageProgress, ...]:
    if plan is None:
        named = {each.stage: each.verdict["share"] for each in verdicts}
    else:
        named = {each.name: each.share for each in plan.stages}
    places = list(named)
    here = places.index(stage) if stage in places else len(places) - 1
    is_over = any(each.decision == "roll_back" for each in verdicts)

    def state(place: int) -> StageState:
        if place == here:
            return "rolled_back" if is_over else "here"
        return "done" if place < here else "ahead"

    return tuple(StageProgress(name, share, state(place)) for place, (name, share) in enumerate(named.items()))


def _turns_per_ns(verdicts: Sequence[LoggedVerdict], stage: str) -> float | None:
    """How fast turns of the candidate come at a stage at present, as `traffic` counts it; at the first look, how fast
    they came since the stage began."""
    looks = [each for each in verdicts if each.stage == stage]
    if not looks:
        return None
    newest = looks[-1]
    if len(looks) == 1:
        since = newest.since_unix_ns
        if since is None or newest.at_unix_ns <= since or not newest.candidate_turns:
            return None
        return newest.candidate_turns / (newest.at_unix_ns - since)
    taken = tuple(
        Look(
            at_unix_ns=each.at_unix_ns,
            stage=stage,
            candidate_turns=each.candidate_turns,
            control_turns=0,
            verdict=each.decision,
        )
        for each in looks
    )
    found = forecast(RolloutHistory(plan="", fingerprint="", stage=stage, looks=taken), 0)
    return None if found is None else found.turns_per_s / NS_PER_S


def _changes(verdicts: Sequence[LoggedVerdict]) -> list[LoggedVerdict]:
    found: list[LoggedVerdict] = []
    for each in verdicts:
        if not found or (found[-1].decision, found[-1].stage) != (each.decision, each.stage):
            found.append(each)
    return found


def _point(of: LoggedVerdict) -> FunnelPoint:
    primary: Mapping[str, Any] = of.verdict["checks"][0] if of.verdict["checks"] else {}
    return FunnelPoint(
        of.at_unix_ns, of.stage, of.decision, primary.get("difference"), primary.get("lower"), primary.get("upper")
    )


def logged_row(check: Mapping[str, Any], name: str) -> CheckRow:
    """A check of a verdict's object as people read it, under a name."""
    unit = check["unit"]
    status = check["status"]
    if "is_worse" in check:
        status = "worse" if check["is_worse"] else "not shown to be worse"
    difference, lower, upper = check["difference"], check["lower"], check["upper"]
    bounds = DASH
    if lower is not None and upper is not None:
        bounds = f"{difference_text(lower, unit)} to {difference_text(upper, unit)}"
    return CheckRow(
        name=name,
        status=status,
        candidate=_text(check["candidate"], unit),
        control=_text(check["control"], unit),
        difference=difference_text(difference, unit),
        bounds=bounds,
        margin=difference_text(check["margin"], unit),
        turns_needed=check["turns_needed"],
        reason=check["reason"],
        difference_value=difference,
        lower=lower,
        upper=upper,
        margin_value=check["margin"],
        turns=check["turns"],
    )


def _name(check: Mapping[str, Any], plan: RolloutPlan | None) -> str:
    """A check in the words of the sentences; without its plan by its name, where the figure is the share of what is bad
    also for a check that is named for what is good."""
    known = None if plan is None else next((each for each in plan.checks if each.name == check["name"]), None)
    if known is not None:
        return known.sentence
    return f"{check['name']}: not good" if check["kind"] in ("good_turns", "objective") else check["name"]


def check_row(result: CheckResult) -> CheckRow:
    """A check as people read it, as the verdict's object has it."""
    return logged_row(check_object(result), result.check.sentence)


def slice_row(each: SliceResult) -> CheckRow:
    """A slice as people read it."""
    name = slice_name(each.dimension, each.value)
    return logged_row({**check_object(each.result), "is_worse": each.is_worse}, name)


def _text(value: float | None, unit: str) -> str:
    if unit == "cost":
        return significant(value)
    return figure(None if value is None else value * NS_PER_S, "ns") if unit == "s" else figure(value, "share")


def difference_text(value: float | None, unit: str) -> str:
    """A difference of a verdict's object for people; `unit` is `s`, `ratio` or `cost`."""
    if unit == "s":
        return signed_difference(None if value is None else value * NS_PER_S, "ns")
    return signed_difference(value, "ratio" if unit == "cost" else "share")
