"""Progress of a rollout, from the verdicts in its log: stages, bounds over time, and when it may continue. Pure.

Figures are those of the verdicts: nothing is estimated again, so a page and `rollout check` agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from telemetry.model.formatting import (
    DASH,
    NS_PER_S,
    declared_figure,
    declared_percent,
    declared_points,
    figure,
    percent,
    signed_difference,
    significant,
)
from telemetry.rollout import sentences
from telemetry.rollout.checks import BeyondShares, CheckResult, SliceResult
from telemetry.rollout.plan import Decision, Look, RolloutPlan, slice_name
from telemetry.rollout.verdict import CheckVerdict, RolloutVerdict, SliceVerdict, check_verdict, slice_verdict

# Traffic of the present: what arrived since the oldest look that is at most this old.
WINDOW_NS: Final = 3600 * NS_PER_S
# A rate of fewer turns than this is chance.
FEWEST_TURNS: Final = 5


@dataclass(frozen=True, slots=True)
class TrafficForecast:
    """Turns of the candidate per second at present, and when the needed ones will have arrived at this rate."""

    turns_per_s: float
    due_unix_ns: int


def forecast(taken: Sequence[Look], turns_needed: int | None) -> TrafficForecast | None:
    """Forecast from the looks at the current stage; None without a rate, or if the number needed is not known."""
    if not taken or turns_needed is None:
        return None
    last = taken[-1]
    looks = [look for look in taken if look.stage == last.stage and 0 <= last.at_unix_ns - look.at_unix_ns <= WINDOW_NS]
    lasted_ns = last.at_unix_ns - looks[0].at_unix_ns
    arrived = last.candidate_turns - looks[0].candidate_turns
    if lasted_ns <= 0 or arrived < FEWEST_TURNS:
        return None
    turns_per_s = arrived * NS_PER_S / lasted_ns
    return TrafficForecast(turns_per_s, last.at_unix_ns + round(turns_needed / turns_per_s * NS_PER_S))


StageState = Literal["done", "here", "ahead", "rolled_back"]
STATUS_WORDS: Final = {"worse": "worse", "within": "within", "open": "not known yet", "unknown": "cannot be compared"}
_HOUR_NS: Final = 3600 * NS_PER_S
# Beyond that, a rate says nothing of when.
_FARTHEST_NS: Final = 365 * 24 * _HOUR_NS


@dataclass(frozen=True, slots=True)
class LoggedVerdict:
    """A stored verdict with its time and its stage."""

    at_unix_ns: int
    stage: str
    since_unix_ns: int | None
    verdict: RolloutVerdict

    @property
    def decision(self) -> Decision:
        """The decision."""
        return self.verdict.verdict

    @property
    def candidate_turns(self) -> int:
        """The number of the candidate's turns that it covers."""
        return 0 if self.verdict.cohorts is None else self.verdict.cohorts.candidate.turns

    @property
    def look(self) -> Look:
        """The look that led to it."""
        cohorts = self.verdict.cohorts
        return Look(
            at_unix_ns=self.at_unix_ns,
            stage=self.stage,
            candidate_turns=self.candidate_turns,
            control_turns=0 if cohorts is None else cohorts.control.turns,
            verdict=self.decision,
        )


@dataclass(frozen=True, slots=True)
class StageProgress:
    """A stage: the candidate's share of callers, and its state in the rollout."""

    name: str
    share: float
    state: StageState


@dataclass(frozen=True, slots=True)
class FunnelPoint:
    """The deciding figures of a check at one look: the share of turns beyond a quantile and the margin with its upper
    bound, or a difference with both bounds, in the check's unit. None where it could not be compared."""

    at_unix_ns: int
    stage: str
    decision: Decision
    estimate: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class Funnel:
    """A check over time, in `unit`: `share` for shares of turns, of which `limit` may be there; else that of its
    difference, whose margin `limit` is."""

    points: tuple[FunnelPoint, ...] = ()
    unit: str = "ratio"
    limit: float | None = None

    def text(self, value: float | None) -> str:
        """A formatted figure of the check."""
        return percent(value, self.limit) if self.unit == "share" else difference_text(value, self.unit)

    def bounds_text(self, point: FunnelPoint) -> str:
        """The bounds of a look as text, if there are any."""
        sides = (None if self.unit == "share" else point.lower, point.upper)
        return sentences.interval(*(None if side is None else self.text(side) for side in sides)) or DASH

    @property
    def limit_text(self) -> str:
        """The limit as text: `margin 100 ms`, or `5 % may be`."""
        if self.limit is None:
            return DASH
        if self.unit == "share":
            return f"{declared_percent(self.limit)} may be"
        return f"margin {_margin_text(self.limit, self.unit)}"


@dataclass(frozen=True, slots=True)
class CheckRow:
    """A check of a verdict as text. `beyond` is the share that decides a check of a quantile, "" for another check;
    `used` is how many turns have a value, "" if all have. `allowed` is the share that may be beyond."""

    name: str
    status: str
    beyond: str
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
    allowed: float | None = None
    turns: int = 0  # of the candidate, those with a value
    used: str = ""

    @property
    def status_text(self) -> str:
        """The status as text, and the number of turns behind it if some have no value."""
        words = STATUS_WORDS.get(self.status, self.status)
        return f"{words}, {self.used}" if self.used else words


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """A rollout as its newest verdict leaves it.

    `funnel` is that of the primary check. `turns_needed` are those of the candidate that the verdict waits for, None
    where that cannot be said; `turns_per_hour` is how fast they came at this stage; `ready_unix_ns` is when they will
    be there at that rate. `changes` are the verdicts at which the decision or the stage changed, the newest first.
    `cause` is the one that rolled back, where the newest only says that it did.
    """

    newest: LoggedVerdict
    stages: tuple[StageProgress, ...]
    checks: tuple[CheckRow, ...]
    slices: tuple[CheckRow, ...]
    funnel: Funnel
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
    verdict = newest.verdict
    pace = _turns_per_ns(verdicts, stage)
    needed = verdict.turns_needed
    ready = None
    if pace and needed and newest.decision == "hold" and newest.stage == stage:
        wait_ns = needed / pace
        ready = newest.at_unix_ns + round(wait_ns) if wait_ns < _FARTHEST_NS else None
    return RolloutProgress(
        newest=newest,
        stages=_stages(plan, verdicts, stage),
        checks=tuple(logged_row(check, check_name(check, plan)) for check in verdict.checks),
        slices=tuple(
            logged_row(kept_slice, slice_name(kept_slice.dimension, kept_slice.value)) for kept_slice in verdict.slices
        ),
        funnel=funnel_of(verdicts),
        turns_needed=needed,
        turns_per_hour=None if pace is None else pace * _HOUR_NS,
        ready_unix_ns=ready,
        changes=tuple(reversed(_changes(verdicts))),
        cause=cause_of(verdicts),
    )


def cause_of(verdicts: Sequence[LoggedVerdict]) -> LoggedVerdict | None:
    """The verdict that rolled back, if the newest only repeats it; else None."""
    if not verdicts or verdicts[-1].decision != "roll_back":
        return None
    first = next(logged for logged in verdicts if logged.decision == "roll_back")
    return None if first is verdicts[-1] else first


def _stages(plan: RolloutPlan | None, verdicts: Sequence[LoggedVerdict], stage: str) -> tuple[StageProgress, ...]:
    if plan is None:
        named = {logged.stage: logged.verdict.share for logged in verdicts}
    else:
        named = {planned.name: planned.share for planned in plan.stages}
    places = list(named)
    here = places.index(stage) if stage in places else len(places) - 1
    is_over = any(logged.decision == "roll_back" for logged in verdicts)

    def state(place: int) -> StageState:
        if place == here:
            return "rolled_back" if is_over else "here"
        return "done" if place < here else "ahead"

    return tuple(StageProgress(name, share, state(place)) for place, (name, share) in enumerate(named.items()))


def _turns_per_ns(verdicts: Sequence[LoggedVerdict], stage: str) -> float | None:
    """Return the rate of the candidate's turns at a stage at present, as `traffic` counts it; at the first look, the
    rate since the stage began."""
    looks = [logged for logged in verdicts if logged.stage == stage]
    if not looks:
        return None
    newest = looks[-1]
    if len(looks) == 1:
        since = newest.since_unix_ns
        if since is None or newest.at_unix_ns <= since or not newest.candidate_turns:
            return None
        return newest.candidate_turns / (newest.at_unix_ns - since)
    traffic = forecast([logged.look for logged in looks], 0)
    return None if traffic is None else traffic.turns_per_s / NS_PER_S


def _changes(verdicts: Sequence[LoggedVerdict]) -> list[LoggedVerdict]:
    changes: list[LoggedVerdict] = []
    for logged in verdicts:
        if not changes or (changes[-1].decision, changes[-1].stage) != (logged.decision, logged.stage):
            changes.append(logged)
    return changes


def funnel_of(verdicts: Sequence[LoggedVerdict], name: str | None = None) -> Funnel:
    """The check of this name over time; without one the primary, which is the first."""
    checks = [
        next((check for check in logged.verdict.checks if name in (None, check.name)), None) for logged in verdicts
    ]
    all_shares = [None if check is None else check.shares for check in checks]
    with_shares = [shares for shares in all_shares if shares is not None]
    if not with_shares:
        known = next((check for check in reversed(checks) if check is not None), None)
        points = tuple(map(_point_of_difference, verdicts, checks))
        return Funnel(points) if known is None else Funnel(points, known.unit, known.margin)
    return Funnel(tuple(map(_point_of_share, verdicts, all_shares)), "share", with_shares[-1].allowed)


def _point_of_difference(at: LoggedVerdict, check: CheckVerdict | None) -> FunnelPoint:
    bounds = (None, None, None) if check is None else (check.difference, check.lower, check.upper)
    return FunnelPoint(at.at_unix_ns, at.stage, at.decision, *bounds)


def _point_of_share(at: LoggedVerdict, shares: BeyondShares | None) -> FunnelPoint:
    # A share has one bound, so that the band reaches from the share to it.
    bounds = (None, None, None) if shares is None else (shares.beyond_margin, shares.beyond_margin, shares.upper)
    return FunnelPoint(at.at_unix_ns, at.stage, at.decision, *bounds)


def explanation_of(rows: Sequence[CheckRow]) -> str | None:
    """Explain the shares of quantile checks, by the first of them; None if there are none."""
    allowed = next((row.allowed for row in rows if row.allowed is not None), None)
    return None if allowed is None else sentences.explanation(allowed)


def logged_row(check: CheckVerdict, name: str) -> CheckRow:
    """A check of a verdict as text, under a name."""
    unit, shares, status = check.unit, check.shares, check.status
    if isinstance(check, SliceVerdict):
        status = "worse" if check.is_worse else "not shown to be worse"
    written = (None if bound is None else difference_text(bound, unit) for bound in (check.lower, check.upper))
    return CheckRow(
        name=name,
        status=status,
        beyond="" if shares is None else sentences.beyond(shares.beyond_margin, shares.upper, shares.allowed),
        candidate=_text(check.candidate, unit),
        control=_text(check.control, unit),
        difference=difference_text(check.difference, unit),
        bounds=sentences.interval(*written) or DASH,
        margin=_margin_text(check.margin, unit),
        turns_needed=check.turns_needed,
        reason=check.reason,
        difference_value=check.difference,
        lower=check.lower,
        upper=check.upper,
        margin_value=check.margin,
        allowed=None if shares is None else shares.allowed,
        turns=check.turns,
        used=sentences.used(check.turns, check.turns if check.eligible is None else check.eligible),
    )


def check_name(check: CheckVerdict, plan: RolloutPlan | None) -> str:
    """A check in the words of the sentences; without its plan by its name, where the figure is the share of what is bad
    also for a check that is named for what is good."""
    known = None if plan is None else next((planned for planned in plan.checks if planned.name == check.name), None)
    if known is not None:
        return known.sentence
    return f"{check.name}: not good" if check.kind in ("good_turns", "objective") else check.name


def check_row(result: CheckResult) -> CheckRow:
    """A check as text."""
    return logged_row(check_verdict(result), result.check.sentence)


def slice_row(result: SliceResult) -> CheckRow:
    """A slice as text."""
    return logged_row(slice_verdict(result), slice_name(result.dimension, result.value))


def _text(value: float | None, unit: str) -> str:
    if unit == "cost":
        return significant(value)
    return figure(None if value is None else value * NS_PER_S, "ns") if unit == "s" else figure(value, "share")


def _margin_text(value: float, unit: str) -> str:
    if unit == "ratio":
        return declared_points(value)
    return declared_figure(value * NS_PER_S, "ns") if unit == "s" else declared_figure(value, "ratio")


def difference_text(value: float | None, unit: str) -> str:
    """A formatted difference; `unit` is `s`, `ratio` or `cost`."""
    if unit == "s":
        return signed_difference(None if value is None else value * NS_PER_S, "ns")
    return signed_difference(value, "ratio" if unit == "cost" else "share")
