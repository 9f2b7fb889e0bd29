"""A rollout's verdict as the JSON object that files, logs and the sidecar's answers hold. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from telemetry.model.formatting import NS_PER_S
from telemetry.rollout.checks import BeyondShares, CheckResult, SliceResult
from telemetry.rollout.completeness import DETECTED, AssignedUnits, UnitCounts
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import RolloutPlan


def as_object(plan: RolloutPlan, verdict: GateVerdict) -> dict[str, Any]:
    """The verdict as a JSON object. Durations are in seconds, shares are ratios."""
    ratio = verdict.sample_ratio
    return {
        "verdict": verdict.verdict,
        "sentence": verdict.sentence,
        "reasons": list(verdict.reasons),
        "notes": list(verdict.notes),
        "turns_needed": verdict.turns_needed,
        "plan": {"name": plan.name, "fingerprint": plan.fingerprint},
        "stage": verdict.stage.name,
        "share": verdict.stage.share,
        "next_stage": None if verdict.next_stage is None else verdict.next_stage.name,
        "cohorts": {
            "candidate": {"name": plan.candidate, "turns": verdict.candidate_turns},
            "control": {"name": plan.control, "turns": verdict.control_turns},
        },
        "sample_ratio": None
        if ratio is None
        else {
            "share": ratio.share,
            "expected_share": ratio.expected_share,
            "p_value": ratio.p_value,
            "detectable_loss": ratio.detectable_loss,
            "detectable_control_loss": ratio.detectable_control_loss,
            "detection_probability": DETECTED,
        },
        "units": units_object(plan, verdict.units),
        "checks": [check_object(result) for result in verdict.checks],
        "slices": [_slice_object(each) for each in verdict.slices],
        "looks": len(verdict.history.looks),
    }


def units_object(plan: RolloutPlan, counts: UnitCounts) -> dict[str, Any]:
    """The units of the verdict's object; those of a cohort met no other."""
    return {
        "unit": plan.unit,
        "seen": counts.units,
        "contaminated": counts.contaminated,
        "unnamed_calls": counts.unnamed_calls,
        "candidate": {"known": counts.candidate.known, "unnamed_calls": counts.candidate.unnamed_calls},
        "control": {"known": counts.control.known, "unnamed_calls": counts.control.unnamed_calls},
    }


def units_of(found: Mapping[str, Any]) -> UnitCounts | None:
    """The counts of such an object; None for that of an earlier version, which counted no cohort by itself."""
    if "candidate" not in found:
        return None
    each = {role: AssignedUnits(**found[role]) for role in ("candidate", "control")}
    return UnitCounts(found["seen"], found["contaminated"], **each, unnamed_calls=found["unnamed_calls"])


def check_object(result: CheckResult) -> dict[str, Any]:
    """One check of the verdict's object."""
    check = result.check
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
        "shares": _shares_object(result.shares, scaled),
        "p_value": result.p_value,
        "turns": result.turns,
        "eligible": result.eligible,
        "turns_needed": result.turns_needed,
        "reason": result.reason,
    }


def _shares_object(
    shares: BeyondShares | None, scaled: Callable[[float | None], float | None]
) -> dict[str, Any] | None:
    return None if shares is None else asdict(shares) | {"threshold": scaled(shares.threshold)}


def _slice_object(each: SliceResult) -> dict[str, Any]:
    return {"dimension": each.dimension, "value": each.value, "is_worse": each.is_worse, **check_object(each.result)}
