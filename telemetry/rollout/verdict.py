"""A rollout's verdict as it is stored and answered: in the store's rows, in `--json`, and by a sidecar. Pure.

Its fields are the keys of the JSON object. Durations are in seconds, shares are ratios.
"""

from dataclasses import replace
from typing import Any

import msgspec

from telemetry.model.formatting import NS_PER_S, turns
from telemetry.rollout.checks import BeyondShares, CheckResult, SliceResult
from telemetry.rollout.completeness import DETECTED, AssignedUnits, UnitCounts
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import AssignmentUnit, CheckKind, Decision, RolloutPlan


class VerdictPlan(msgspec.Struct, frozen=True):
    """The plan that was judged by."""

    name: str
    fingerprint: str


class CohortCount(msgspec.Struct, frozen=True):
    """The eligible turns of a cohort."""

    name: str
    turns: int


class CohortCounts(msgspec.Struct, frozen=True):
    """The counts of both cohorts."""

    candidate: CohortCount
    control: CohortCount


class SampleSplit(msgspec.Struct, frozen=True):
    """See `completeness.SampleRatio`."""

    share: float
    expected_share: float
    p_value: float | None = None
    detectable_loss: float | None = None
    detectable_control_loss: float | None = None
    detection_probability: float = DETECTED


class VerdictUnits(msgspec.Struct, frozen=True):
    """See `completeness.UnitCounts`; the units of a cohort met no other."""

    unit: AssignmentUnit
    seen: int
    contaminated: int
    unnamed_calls: int
    candidate: AssignedUnits
    control: AssignedUnits

    @property
    def counts(self) -> UnitCounts:
        """The counts as the gate has them."""
        return UnitCounts(self.seen, self.contaminated, self.candidate, self.control, self.unnamed_calls)


class CheckVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """See `checks.CheckResult`. `unit` is that of its figures: `s`, `ratio` or `cost`."""

    name: str
    kind: CheckKind
    status: str
    unit: str
    candidate: float | None
    control: float | None
    difference: float | None
    lower: float | None
    upper: float | None
    margin: float
    shares: BeyondShares | None = None
    p_value: float | None = None
    turns: int = 0
    eligible: int | None = None
    turns_needed: int | None = None
    reason: str | None = None


class SliceVerdict(CheckVerdict, frozen=True, kw_only=True):
    """See `checks.SliceResult`."""

    dimension: str
    value: str
    is_worse: bool


class RolloutVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """See `gate.GateVerdict`. If the evidence could not be read, there are no cohorts."""

    verdict: Decision
    sentence: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    turns_needed: int | None
    plan: VerdictPlan
    stage: str
    share: float
    next_stage: str | None = None
    cohorts: CohortCounts | None
    sample_ratio: SampleSplit | None = None
    units: VerdictUnits | None = None
    checks: tuple[CheckVerdict, ...] = ()
    slices: tuple[SliceVerdict, ...] = ()
    looks: int = 0

    @property
    def needed_sentence(self) -> str | None:
        """The number of turns that it still waits for, as text; None if it waits for none, or that is not known."""
        if not self.turns_needed or self.cohorts is None:
            return None
        return f"about {turns(self.turns_needed)} more of {self.cohorts.candidate.name} are needed"

    @property
    def other_reasons(self) -> tuple[str, ...]:
        """The reasons that are not in the sentence; a promotion needs none."""
        return () if self.verdict == "promote" else self.reasons[1:]


def rollout_verdict(plan: RolloutPlan, verdict: GateVerdict) -> RolloutVerdict:
    """The gate's verdict in its stored form."""
    ratio, units = verdict.sample_ratio, verdict.units
    return RolloutVerdict(
        verdict=verdict.verdict,
        sentence=verdict.sentence,
        reasons=verdict.reasons,
        notes=verdict.notes,
        turns_needed=verdict.turns_needed,
        plan=VerdictPlan(plan.name, plan.fingerprint),
        stage=verdict.stage.name,
        share=verdict.stage.share,
        next_stage=None if verdict.next_stage is None else verdict.next_stage.name,
        cohorts=CohortCounts(
            CohortCount(plan.candidate, verdict.candidate_turns), CohortCount(plan.control, verdict.control_turns)
        ),
        sample_ratio=None
        if ratio is None
        else SampleSplit(
            ratio.share, ratio.expected_share, ratio.p_value, ratio.detectable_loss, ratio.detectable_control_loss
        ),
        units=VerdictUnits(
            plan.unit, units.units, units.contaminated, units.unnamed_calls, units.candidate, units.control
        ),
        checks=tuple(check_verdict(result) for result in verdict.checks),
        slices=tuple(slice_verdict(result) for result in verdict.slices),
        looks=len(verdict.history.looks),
    )


def check_verdict(result: CheckResult) -> CheckVerdict:
    """A check in its stored form."""
    return CheckVerdict(**_fields(result))


def slice_verdict(result: SliceResult) -> SliceVerdict:
    """A slice in its stored form."""
    return SliceVerdict(
        dimension=result.dimension, value=result.value, is_worse=result.is_worse, **_fields(result.result)
    )


def _fields(result: CheckResult) -> dict[str, Any]:
    check, shares = result.check, result.shares
    is_duration = check.figure_kind == "ns"

    def scaled(value: float | None) -> float | None:
        return value / NS_PER_S if is_duration and value is not None else value

    return {
        "name": check.name,
        "kind": check.kind,
        "status": result.status,
        "unit": "s" if is_duration else "cost" if check.kind == "cost_per_turn" else "ratio",
        "candidate": scaled(result.candidate),
        "control": scaled(result.control),
        "difference": scaled(result.difference),
        "lower": scaled(result.lower),
        "upper": scaled(result.upper),
        "margin": scaled(check.margin),
        "shares": None if shares is None else replace(shares, threshold=scaled(shares.threshold)),
        "p_value": result.p_value,
        "turns": result.turns,
        "eligible": result.eligible,
        "turns_needed": result.turns_needed,
        "reason": result.reason,
    }
