"""Looks at rollouts over a store and keeps each verdict in its log before anybody hears of it.

Whatever goes wrong is a state that holds, with a sentence: a plan that cannot be read, a log that others changed or
write, a store that cannot be read, a disk that takes no verdict.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.formatting import NS_PER_S
from telemetry.objectives.objective import Objective
from telemetry.rollout.checks import BeyondShares
from telemetry.rollout.gate import GateVerdict, decide
from telemetry.rollout.plan import Decision, RolloutHistory, RolloutPlan, conflicts, moment
from telemetry.rollout.verdict_document import as_object
from telemetry.sidecar.rollouts.settings import RolloutSetting, read_plan
from telemetry.store.questions.rollouts import evidence_of, question_of
from telemetry.store.reader import StoreReader
from telemetry.store.rollout_log import RolloutLog

_log = logging.getLogger(__name__)
_Stamp = tuple[int, int, int]

# Answers of HTTP to whoever moves the share.
BEGUN: Final = 200
UNKNOWN: Final = 404
REFUSED: Final = 409
UNAVAILABLE: Final = 503
# A promotion is acted upon while it is at most so many intervals old.
FRESH_INTERVALS: Final = 3
FRESH_GRACE_S: Final = 30.0


class StageAsked(msgspec.Struct, frozen=True):
    """May this stage begin? None: the next one. If it may, it has begun with the answer.

    `is_settled`: the stage has begun, and its share is in effect only now; turns from now on are judged.
    """

    rollout: str
    stage: str | None
    is_settled: bool = False


class StageAnswered(msgspec.Struct, frozen=True):
    """The status of the HTTP answer, a sentence, and the stage at which the rollout is."""

    status: int
    sentence: str
    stage: str


class PrimaryFigures(msgspec.Struct, frozen=True):
    """The primary check: the shares of turns that decide it, and the difference of the quantiles with its interval of
    one look, in seconds; None where it is not known."""

    margin_s: float
    lower_s: float | None = None
    estimate_s: float | None = None
    upper_s: float | None = None
    shares: BeyondShares | None = None


class RolloutState(msgspec.Struct, frozen=True):
    """What a look at a rollout found: what is answered until the next one.

    `body` is the verdict as a JSON object. `kept_unix_ns` is when the log last took a verdict, and `is_kept` whether it
    took this one; others only hold. `promoted` are the stages before this one whose promotion still holds.
    """

    rollout: str
    decision: Decision
    sentence: str
    stage: str
    stages: tuple[str, ...]
    share: float
    turns_needed: int | None
    is_kept: bool
    at_unix_ns: int
    kept_unix_ns: int | None
    body: bytes
    promoted: tuple[str, ...] = ()
    primary: PrimaryFigures | None = None


@dataclass(slots=True)
class _Evaluated:
    """One rollout between two looks. `plan` is the newest one that could be read."""

    setting: RolloutSetting
    plan: RolloutPlan
    text: str
    stamp: _Stamp | None = None
    log: RolloutLog | None = None
    state: RolloutState | None = None
    is_kept: bool = False


@dataclass(slots=True)
class RolloutEvaluator:
    """Evaluates rollouts of a store that this process alone evaluates. Raises ConfigError where a plan cannot be read
    at the beginning. `every_s` is how often somebody calls `look`."""

    store: Path
    settings: Sequence[RolloutSetting]
    objectives: Sequence[Objective]
    reader: StoreReader
    wall_clock_ns: Callable[[], int]
    every_s: float
    _rollouts: dict[str, _Evaluated] = field(default_factory=dict[str, _Evaluated])

    def __post_init__(self) -> None:
        for setting in self.settings:
            stamp = _stamp_of(setting.plan_file)
            plan, text = read_plan(Path(setting.plan_file), self.objectives)
            self._rollouts[setting.name] = _Evaluated(setting, plan, text, stamp)

    def close(self) -> None:
        """Let another process evaluate."""
        for rollout in self._rollouts.values():
            if rollout.log is not None:
                rollout.log.close()

    def look(self, name: str) -> RolloutState:
        """Evaluate a rollout; its verdict is in the log when this returns, or it is a hold."""
        rollout = self._rollouts[name]
        now = self.wall_clock_ns()
        try:
            state = self._look(rollout, now)
        except (ConfigError, StoreError) as error:
            state = _held(rollout, str(error), now)
        except Exception as error:  # noqa: BLE001 - one rollout must not keep the others from being evaluated
            _log.exception("the rollout %s cannot be evaluated", name)
            why = f"it cannot be evaluated ({type(error).__name__}); see the sidecar's messages"
            state = _held(rollout, why, now)
        rollout.state = state
        return state

    def begin(self, asked: StageAsked) -> StageAnswered:
        """Whether a stage may begin; if it may, the log has it when this returns."""
        rollout = self._rollouts[asked.rollout]
        try:
            step = self._settled if asked.is_settled else self._begin
            status, sentence = step(rollout, asked.stage)
        except (ConfigError, StoreError) as error:
            status, sentence = UNAVAILABLE, str(error)
        return StageAnswered(status, sentence, _stage_of(rollout))

    def _look(self, rollout: _Evaluated, now: int) -> RolloutState:
        log = self._log_of(rollout, now)
        plan = self._plan(rollout)
        history = log.history
        if not any(stage.name == history.stage for stage in plan.stages):
            raise ConfigError(
                rollout.setting.plan_file,
                [f"the plan was edited: it has no stage {history.stage} any more, at which the rollout is; restore it"],
            )
        found = self.reader.rollout_turns(question_of(plan, history.stage_since_unix_ns, self.objectives))
        verdict = decide(plan, evidence_of(found, self._others(rollout)), history, now)
        entry = log.append(plan, verdict)
        after = verdict.next_stage
        if verdict.verdict == "promote" and after is not None and rollout.setting.next_stage == "on-promotion":
            log.move(after.name, now)
            return self._look(rollout, now)  # of the new stage, which has no turn yet
        return _state_of(rollout, plan, verdict, log.history, entry.sequence)

    def _begin(self, rollout: _Evaluated, stage: str | None) -> tuple[int, str]:
        state, log = rollout.state, rollout.log
        if state is None or log is None:
            return UNAVAILABLE, "the rollout has not been evaluated yet; ask again"
        if not state.is_kept:
            return REFUSED, state.sentence
        plan, history, now = rollout.plan, log.history, self.wall_clock_ns()
        if stage is not None and not any(each.name == stage for each in plan.stages):
            return UNKNOWN, f"there is no stage {stage!r:.80}; known are {', '.join(state.stages)}"
        if history.is_rolled_back or history.fingerprint != plan.fingerprint or self._others(rollout):
            return REFUSED, state.sentence
        is_first = history.stage == plan.stages[0].name and stage in (None, history.stage)
        if is_first and log.moves == 0 and not any(look.candidate_turns for look in history.looks):
            # Nobody has the change yet: the first share needs no verdict, but a plan that can be evaluated.
            log.move(history.stage, now)
            return BEGUN, f"the stage {history.stage} begins"
        if stage == history.stage:
            return BEGUN, f"the rollout is at stage {stage} already"
        return self._after_promotion(rollout.plan, state, log, stage)

    def _settled(self, rollout: _Evaluated, stage: str | None) -> tuple[int, str]:
        """Judge a stage by the turns from now on, once: nobody may look until the turns suit."""
        state, log = rollout.state, rollout.log
        if state is None or log is None:
            return UNAVAILABLE, "the rollout has not been evaluated yet; ask again"
        history = log.history
        if not state.is_kept or history.is_rolled_back or history.fingerprint != rollout.plan.fingerprint:
            return REFUSED, state.sentence
        if stage != history.stage:
            return REFUSED, f"the rollout is at stage {history.stage}; only a stage that has begun can be settled"
        if log.begins_here > 1:
            since = history.stage_since_unix_ns
            known = "" if since is None else f" since {moment(since)}"
            return BEGUN, f"the turns of stage {stage} count{known}"
        if any(look.verdict != "hold" for look in history.looks if look.stage == stage):
            return REFUSED, state.sentence
        log.move(history.stage, self.wall_clock_ns())
        return BEGUN, f"the turns of stage {stage} count from now on"

    def _after_promotion(
        self, plan: RolloutPlan, state: RolloutState, log: RolloutLog, stage: str | None
    ) -> tuple[int, str]:
        history, now = log.history, self.wall_clock_ns()
        after = plan.stage_after(history.stage)
        if stage is not None and (after is None or after.name != stage):
            return REFUSED, f"the rollout is at stage {history.stage}, and {stage} is not the next one"
        last = history.last_look
        if last is None or last.verdict != "promote" or last.stage != history.stage or state.decision != "promote":
            return REFUSED, state.sentence
        age_s = (now - last.at_unix_ns) / NS_PER_S
        if not 0 <= age_s <= FRESH_INTERVALS * self.every_s + FRESH_GRACE_S:
            return REFUSED, f"the last promotion is of {moment(last.at_unix_ns)}, and it is {moment(now)}"
        if after is None:
            return BEGUN, f"{history.stage} is the last stage, and it was promoted"
        log.move(after.name, now)
        return BEGUN, f"the stage {after.name} begins: {history.stage} was promoted"

    def _log_of(self, rollout: _Evaluated, now: int) -> RolloutLog:
        if rollout.log is None:
            rollout.log = RolloutLog(self.store, rollout.plan, rollout.text, now)
        return rollout.log

    def _plan(self, rollout: _Evaluated) -> RolloutPlan:
        """The plan as its file states it now. Raises ConfigError where it states none, or that of another rollout."""
        file = rollout.setting.plan_file
        stamp = _stamp_of(file)
        if stamp is None or stamp != rollout.stamp:
            plan, text = read_plan(Path(file), self.objectives)
            if plan.name != rollout.setting.name:
                raise ConfigError(file, [f"the plan was edited: it is of {plan.name} now; restore its name"])
            rollout.plan, rollout.text, rollout.stamp = plan, text, stamp
        return rollout.plan

    def _others(self, rollout: _Evaluated) -> tuple[RolloutPlan, ...]:
        """The plans beside which this one cannot be evaluated."""
        plans = (each.plan for each in self._rollouts.values() if each is not rollout)
        return tuple(plan for plan in plans if conflicts([rollout.plan, plan]))


def _stamp_of(file: str) -> _Stamp | None:
    """What changes whenever a file is replaced; None where it cannot be looked at."""
    with contextlib.suppress(OSError):
        stat = Path(file).stat()
        return stat.st_mtime_ns, stat.st_ino, stat.st_size
    return None


def _stage_of(rollout: _Evaluated) -> str:
    return rollout.log.history.stage if rollout.log is not None else rollout.plan.stages[0].name


def _state_of(
    rollout: _Evaluated, plan: RolloutPlan, verdict: GateVerdict, history: RolloutHistory, sequence: int
) -> RolloutState:
    at = verdict.history.looks[-1].at_unix_ns
    body = {"rollout": plan.name, "at_unix_ns": at, "sequence": sequence, **as_object(plan, verdict)}
    is_edited = history.fingerprint != plan.fingerprint
    names = tuple(stage.name for stage in plan.stages)
    promoted = {look.stage for look in history.looks if look.verdict == "promote"}
    before = names[: names.index(history.stage)]
    holds = verdict.verdict != "roll_back" and not is_edited
    primary = next((result for result in verdict.checks if result.check == plan.primary), None)
    return RolloutState(
        rollout=plan.name,
        decision=verdict.verdict,
        sentence=verdict.sentence,
        stage=history.stage,
        stages=names,
        share=verdict.stage.share,
        turns_needed=verdict.turns_needed,
        is_kept=True,
        at_unix_ns=at,
        kept_unix_ns=at,
        body=msgspec.json.encode(body),
        promoted=tuple(name for name in before if name in promoted) if holds else (),
        primary=None
        if primary is None
        else PrimaryFigures(
            primary.check.margin / NS_PER_S,
            *(_seconds(each) for each in (primary.lower, primary.difference, primary.upper)),
            shares=primary.shares,
        ),
    )


def _held(rollout: _Evaluated, why: str, now: int) -> RolloutState:
    """A hold that no log has: it promotes nothing and rolls nothing back."""
    plan, before = rollout.plan, rollout.state
    history = rollout.log.history if rollout.log is not None else None
    stage = next((each for each in plan.stages if history is not None and each.name == history.stage), plan.stages[0])
    sentence = f"hold {plan.candidate} at stage {stage.name}: {why}"
    body: dict[str, Any] = {
        "rollout": rollout.setting.name,
        "at_unix_ns": now,
        "sequence": None,
        "verdict": "hold",
        "sentence": sentence,
        "reasons": [why],
        "notes": [],
        "turns_needed": None,
        "plan": {"name": plan.name, "fingerprint": plan.fingerprint},
        "stage": stage.name,
        "share": stage.share,
        "next_stage": None,
        "cohorts": None,
        "sample_ratio": None,
        "checks": [],
        "slices": [],
        "looks": 0 if history is None else len(history.looks),
    }
    return RolloutState(
        rollout=rollout.setting.name,
        decision="hold",
        sentence=sentence,
        stage=stage.name,
        stages=tuple(each.name for each in plan.stages),
        share=stage.share,
        turns_needed=None,
        is_kept=False,
        at_unix_ns=now,
        kept_unix_ns=None if before is None else before.kept_unix_ns,
        body=msgspec.json.encode(body),
    )


def _seconds(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_S
