"""The gate: promote, hold or roll back, why, and how many turns are still needed. Pure: the time is a parameter.

The rules, in their order; the first that applies decides:

1. The plan, the history and the clocks must be sound (`_unsound`): otherwise hold.
2. A rollout that was rolled back stays so.
3. Both cohorts must have turns, of the services that the plan names or of the only one, telemetry must be complete,
   units must have met one cohort each, and the cohorts' sizes must fit the plan: otherwise hold.
4. Any check shown to be worse than the control, and estimated to be so by its margin at least: roll back.
5. Every check shown to stay within its margin, and the stage's shortest time and fewest turns are there: promote.
6. Otherwise hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import count, declared_percent, turns
from telemetry.rollout import sentences
from telemetry.rollout.checks import CheckResult, SliceResult, applied_checks, slice_results
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.completeness import (
    SampleRatio,
    UnitCounts,
    met_both,
    mismatch,
    nameless,
    sample_ratio,
    split_notes,
    too_many_contaminated,
    too_many_invalid,
    too_many_nameless,
    too_many_unassigned,
    too_much_lost,
    unassigned,
)
from telemetry.rollout.plan import Decision, Look, RolloutHistory, RolloutPlan, Stage, conflicts, moment

# Hosts whose clocks are kept by NTP differ by less.
CLOCK_GRACE_NS: Final = 60_000_000_000
_NAMED_MAX: Final = 5
_LOSS_UNKNOWN: Final = "nothing says whether telemetry was lost: these turns carry no sequence numbers"


@dataclass(frozen=True, slots=True)
class RolloutEvidence:
    """The evidence that has arrived of a stage, from one read of the store.

    `telemetry_lost` is the share of turns known to be missing, None where nothing says how many there were. `cohorts`
    names those that were seen at all. `other_plans` are evaluated at the same time. `units` says how many units each
    cohort has, and how many met both; `services` are those whose turns name the candidate, and those that name the
    control, whatever the plan names. `unassigned_turns` got no answer, and are of calls of
    these cohorts' runs that name no cohort.
    """

    candidate: CohortTurns
    control: CohortTurns
    telemetry_lost: float | None
    cohorts: tuple[str, ...] = ()
    other_plans: tuple[RolloutPlan, ...] = ()
    units: UnitCounts = UnitCounts()  # noqa: RUF009 - immutable
    services: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    unassigned_turns: int = 0

    @property
    def every_service(self) -> tuple[str, ...]:
        """The services of both cohorts."""
        return tuple(sorted({*self.services[0], *self.services[1]}))

    @property
    def are_users_known(self) -> bool:
        """Whether every turn of both cohorts names its user."""
        return self.candidate.are_users_known and self.control.are_users_known


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """A decision and its reasons. `turns_needed` is how many more turns of the candidate the verdict waits for; None
    where that cannot be said, 0 where it waits for none. `history` is to be passed to the next look."""

    verdict: Decision
    sentence: str
    reasons: tuple[str, ...]
    checks: tuple[CheckResult, ...]
    slices: tuple[SliceResult, ...]
    turns_needed: int | None
    stage: Stage
    next_stage: Stage | None
    sample_ratio: SampleRatio | None
    history: RolloutHistory
    candidate_turns: int
    control_turns: int
    notes: tuple[str, ...] = ()
    units: UnitCounts = UnitCounts()  # noqa: RUF009 - immutable


def first_history(plan: RolloutPlan, now_unix_ns: int | None = None) -> RolloutHistory:
    """The history of a rollout before its first look. If the plan does not state its start, it begins now: earlier
    turns are not of this rollout. Without either time it begins with the first turn."""
    return RolloutHistory(
        plan=plan.name,
        fingerprint=plan.fingerprint,
        stage=plan.stages[0].name,
        stage_since_unix_ns=now_unix_ns if plan.begins_unix_ns is None else plan.begins_unix_ns,
    )


def decide(plan: RolloutPlan, evidence: RolloutEvidence, history: RolloutHistory, now_unix_ns: int) -> GateVerdict:
    """The verdict on the history's current stage. Raises ConfigError if the plan has no such stage."""
    stage = plan.stage(history.stage)
    judged = _Judged(plan, stage, evidence, history, now_unix_ns)
    verdict, reasons = judged.decision()
    look = Look(
        at_unix_ns=now_unix_ns,
        stage=stage.name,
        candidate_turns=evidence.candidate.eligible_turns,
        control_turns=evidence.control.eligible_turns,
        verdict=verdict,
    )
    return GateVerdict(
        verdict=verdict,
        sentence=judged.sentence(verdict, reasons),
        reasons=tuple(reasons),
        checks=judged.checks,
        slices=judged.slices,
        turns_needed=judged.turns_needed() if verdict == "hold" else 0,
        stage=stage,
        next_stage=plan.stage_after(stage.name),
        sample_ratio=judged.ratio,
        history=history.with_look(look),
        candidate_turns=look.candidate_turns,
        control_turns=look.control_turns,
        notes=judged.notes(),
        units=evidence.units,
    )


class _Judged:
    """One look."""

    def __init__(
        self, plan: RolloutPlan, stage: Stage, evidence: RolloutEvidence, history: RolloutHistory, now_unix_ns: int
    ) -> None:
        self.plan = plan
        self.stage = stage
        self.evidence = evidence
        self.history = history
        self.now_unix_ns = now_unix_ns
        candidate, control = evidence.candidate, evidence.control
        self.ratio: SampleRatio | None = None
        self.checks: tuple[CheckResult, ...] = ()
        self.slices: tuple[SliceResult, ...] = ()
        self.not_applied: tuple[str, ...] = ()
        if candidate.turns and control.turns and stage.has_control:
            self.ratio = sample_ratio(stage, evidence.units, plan.unit, plan.completeness.sample_ratio_p)
            applied = applied_checks(plan, candidate, control)
            self.checks, self.not_applied = applied.results, applied.notes
            self.slices = slice_results(plan, candidate, control)

    def decision(self) -> tuple[Decision, list[str]]:
        """The first rule that applies, with all of its reasons."""
        if unsound := self._unsound():
            return "hold", unsound
        if self.history.is_rolled_back:
            when = next(moment(look.at_unix_ns) for look in self.history.looks if look.verdict == "roll_back")
            again = "begin another rollout, under another name"
            if self.plan.begins_unix_ns is not None:
                again += " and with a later begins"
            return "roll_back", [f"rolled back at {when}; {again}, to try again"]
        if incomplete := [*self._absent(), *self._incomplete()]:
            return "hold", incomplete
        if worse := [sentences.worse(result) for result in self.checks if result.status == "worse"]:
            return "roll_back", worse
        waits = [*self._open(), *self._too_early()]
        return ("hold", waits) if waits else ("promote", [sentences.within(result) for result in self.checks])

    def sentence(self, verdict: Decision, reasons: Sequence[str]) -> str:
        """The verdict in one sentence."""
        words = {"promote": "promote", "hold": "hold", "roll_back": "roll back"}
        cohort = f"{self.plan.candidate} at stage {self.stage.name}"
        more = f" (and {count(len(reasons) - 1, 'more reason')})" if len(reasons) > 1 and verdict != "promote" else ""
        return f"{words[verdict]} {cohort}: {reasons[0]}{more}"

    def turns_needed(self) -> int | None:
        """The most turns that any check, or the stage, waits for."""
        fewest = max(0, self.stage.fewest_turns - self.evidence.candidate.eligible_turns)
        if not self.checks:
            return None
        needed = [result.turns_needed for result in self.checks if result.holds]
        return None if None in needed else max([fewest, *(number for number in needed if number is not None)])

    def _unsound(self) -> list[str]:
        plan, history, now = self.plan, self.history, self.now_unix_ns
        reasons = conflicts([plan, *self.evidence.other_plans])
        if history.plan != plan.name:
            reasons.append(
                f"the history is of the rollout {history.plan}, not of {plan.name}: give the one that belongs"
            )
        elif history.fingerprint != plan.fingerprint:
            looks = count(len(history.looks), "look")
            reasons.append(f"the plan was edited after {looks}: restore it, or begin a rollout of another name")
        newest = max((look.at_unix_ns for look in history.looks), default=now)
        if newest > now:
            reasons.append(
                f"the clock went back: it is {moment(now)}, and a look was taken at {moment(newest)}; set it"
            )
        since = history.stage_since_unix_ns
        if since is not None and since > now:
            reasons.append(f"the stage begins at {moment(since)}, which has not come yet: it is {moment(now)}")
        for cohort in (self.evidence.candidate, self.evidence.control):
            if cohort.newest_unix_ns is not None and cohort.newest_unix_ns > now + CLOCK_GRACE_NS:
                reasons.append(
                    f"turns of {cohort.cohort} began at {moment(cohort.newest_unix_ns)}, and it is {moment(now)}: "
                    "set the clocks of the hosts"
                )
        return [*reasons, *self._vanished()]

    def _vanished(self) -> list[str]:
        since = self.history.stage_since_unix_ns
        looks = [
            look
            for look in self.history.looks
            if look.stage == self.stage.name and (since is None or look.at_unix_ns > since)
        ]
        known = (
            (self.evidence.candidate, max((look.candidate_turns for look in looks), default=0)),
            (self.evidence.control, max((look.control_turns for look in looks), default=0)),
        )
        return [
            f"{turns(before - cohort.eligible_turns)} of {cohort.cohort} that an earlier look saw are gone: "
            "a verdict over the others would be one over a choice of turns"
            for cohort, before in known
            if cohort.eligible_turns < before
        ]

    def _absent(self) -> list[str]:
        if not self.stage.has_control:
            return [f"all callers are on {self.plan.candidate}: there is no control left to compare with"]
        since = self.history.stage_since_unix_ns
        begin = "" if since is None else f" since {moment(since)}"
        names = ", ".join(map(one_line, self.evidence.cohorts))
        seen = f"; cohorts seen are {names}" if names else ""
        if self.plan.services:
            named, others = ", ".join(self.plan.services), ", ".join(map(one_line, self.evidence.every_service))
            seen += f"; the plan is about {named}" + (f", and turns of {others} name its cohorts" if others else "")
        return [
            f"no turn of the {role} {cohort.cohort} has arrived{begin}{seen}: look at the flag's variants and its share"
            for role, cohort in (("candidate", self.evidence.candidate), ("control", self.evidence.control))
            if not cohort.turns
        ]

    def _incomplete(self) -> list[str]:
        limits, lost = self.plan.completeness, self.evidence.telemetry_lost
        reasons = self._several_services()
        if lost is None and self.plan.source == "client":
            reasons.append(_LOSS_UNKNOWN)
        reasons += too_much_lost(lost, limits, is_planned=True)
        both = (self.evidence.candidate, self.evidence.control)
        reasons += too_many_invalid(both, limits, is_planned=True)
        reasons += too_many_nameless(both, limits)
        reasons += too_many_unassigned(self.evidence.unassigned_turns, self.evidence.candidate, limits)
        reasons += too_many_contaminated(self.evidence.units, limits, self.plan.unit, is_planned=True)
        return [*reasons, *mismatch(self.ratio, self.plan.candidate)]

    def _several_services(self) -> list[str]:
        """Report several services of a cohort. Endpoints have addresses instead of names: each cohort may have its
        own."""
        every, is_named = self.evidence.every_service, self.plan.source == "service"
        several = len(every) if is_named else max(map(len, self.evidence.services))
        if self.plan.services or several < 2:
            return []
        what = "services" if is_named else "endpoints"
        named = ", ".join(map(one_line, every[:_NAMED_MAX])) + (", …" if len(every) > _NAMED_MAX else "")
        return [
            f"turns of {len(every)} {what} name these cohorts ({named}), and the plan names none: write those that it "
            f'is about into it, as services = ["{one_line(every[0])}"]'
        ]

    def notes(self) -> tuple[str, ...]:
        """Notes on what weakens the verdict without deciding it."""
        notes: list[str] = []
        are_named = self.plan.unit == "call" or self.evidence.are_users_known
        if not are_named:
            notes.append(
                f"callers are assigned by user and {self._unnamed()} name no user: the variance is clustered by call "
                "there, so the bounds are too narrow where users call often"
            )
        if self.checks:
            notes += split_notes(self.ratio, self.plan.candidate, self.plan.control, are_named=are_named)
        if self.evidence.telemetry_lost is None and self.plan.source == "service":
            notes.append(_LOSS_UNKNOWN)
        if 0 < self.evidence.units.contaminated_share <= self.plan.completeness.contaminated_units:
            allowed = declared_percent(self.plan.completeness.contaminated_units)
            notes.append(f"{met_both(self.evidence.units, self.plan.unit)}, of which the plan allows {allowed}")
        both, allowed = (self.evidence.candidate, self.evidence.control), self.plan.completeness.invalid_turns
        notes += [f"{nameless(cohort)}, and count nowhere" for cohort in both if 0 < cohort.nameless_share <= allowed]
        failed, share = unassigned(self.evidence.unassigned_turns, self.evidence.candidate)
        is_allowed = 0 < share <= self.plan.completeness.unassigned_turns
        notes += [f"{failed}; they count nowhere"] if is_allowed else []
        return (*notes, *self.not_applied)

    def _unnamed(self) -> str:
        both = (self.evidence.candidate, self.evidence.control)
        unnamed = sum(cohort.turns if cohort.unnamed_turns is None else cohort.unnamed_turns for cohort in both)
        return f"{count(unnamed, 'turn')} of {sum(cohort.turns for cohort in both):,}"

    def _open(self) -> list[str]:
        return [sentences.undecided(result) for result in self.checks if result.holds]

    def _too_early(self) -> list[str]:
        reasons: list[str] = []
        have = self.evidence.candidate.eligible_turns
        if have < self.stage.fewest_turns:
            wanted = turns(self.stage.fewest_turns)
            reasons.append(f"{turns(have)} of {self.plan.candidate} are there, and the stage asks for {wanted}")
        since = self.history.stage_since_unix_ns
        begin = since if since is not None else self.evidence.candidate.first_unix_ns
        if begin is None or self.now_unix_ns < begin + self.stage.shortest.ns:
            start = "" if begin is None else f" from {moment(begin)}"
            reasons.append(f"the stage lasts at least {self.stage.shortest}{start}")
        return reasons
