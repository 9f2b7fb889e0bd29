"""The one evaluator of rollouts, in a sidecar and in `rollout run`: it stores each verdict as a row before it answers
with it.

Every error is a state that holds, with a sentence: an unreadable plan, rows that another process writes, an unreadable
store, a disk that cannot store a verdict.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.formatting import NS_PER_S
from telemetry.objectives.objective import Objective
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import Decision, RolloutHistory, RolloutPlan, conflicts, moment
from telemetry.rollout.verdict import CheckVerdict, RolloutVerdict, VerdictPlan, rollout_verdict
from telemetry.sidecar.rollouts.rollout_log import RolloutLog
from telemetry.sidecar.rollouts.settings import RolloutSetting, read_plan
from telemetry.store.questions.rollouts import look
from telemetry.store.reader import StoreReader
from telemetry.store.rollout_rows import RolloutEntry

_log = logging.getLogger(__name__)

# HTTP answers to the program that changes the share.
BEGUN: Final = 200
UNKNOWN: Final = 404
REFUSED: Final = 409
UNAVAILABLE: Final = 503
# A promotion is acted upon while it is at most this many intervals old.
FRESH_INTERVALS: Final = 3
FRESH_GRACE_S: Final = 30.0


class StageAnswered(msgspec.Struct, frozen=True):
    """The status of the HTTP answer, a sentence, and the current stage of the rollout."""

    status: int
    sentence: str
    stage: str


class EvaluatedVerdict(RolloutVerdict, frozen=True, kw_only=True):
    """A verdict as it is answered: its rollout, its time, and the number of its stored row; with None it is not stored,
    and holds."""

    rollout: str
    at_unix_ns: int
    sequence: int | None


class RolloutState(msgspec.Struct, frozen=True):
    """The result of the last look at a rollout, which is answered until the next one.

    `stage` is the current stage. `kept_unix_ns` is when a verdict was last stored. `promoted` are the earlier stages
    whose promotion is still valid.
    """

    verdict: EvaluatedVerdict
    stage: str
    stages: tuple[str, ...]
    kept_unix_ns: int | None
    promoted: tuple[str, ...] = ()
    primary: CheckVerdict | None = None

    @property
    def decision(self) -> Decision:
        """The verdict's decision."""
        return self.verdict.verdict

    @property
    def sentence(self) -> str:
        """The verdict's sentence."""
        return self.verdict.sentence

    @property
    def is_kept(self) -> bool:
        """Whether the store has this verdict; a verdict that is not stored only holds."""
        return self.verdict.sequence is not None


@dataclass(slots=True)
class _Evaluated:
    """One rollout between two looks. `plan` is the newest readable one."""

    setting: RolloutSetting
    plan: RolloutPlan
    text: str
    log: RolloutLog | None = None
    state: RolloutState | None = None


@dataclass(slots=True)
class RolloutEvaluator:
    """Evaluates the rollouts of a store; no other process may evaluate them. Raises ConfigError if a plan cannot be
    read at the start. `every_s` is the interval between calls of `look`; `name` identifies the evaluator in the log,
    `asker` the process that starts stages."""

    store: Path
    settings: Sequence[RolloutSetting]
    objectives: Sequence[Objective]
    reader: StoreReader
    wall_clock_ns: Callable[[], int]
    every_s: float
    name: str = "sidecar"
    asker: str = "a request to the sidecar"
    _rollouts: dict[str, _Evaluated] = field(default_factory=dict[str, _Evaluated])

    def __post_init__(self) -> None:
        for setting in self.settings:
            plan, text = read_plan(Path(setting.plan_file), self.objectives)
            self._rollouts[setting.name] = _Evaluated(setting, plan, text)

    def close(self) -> None:
        """Release the lock, so that another process can evaluate."""
        for rollout in self._rollouts.values():
            if rollout.log is not None:
                rollout.log.close()

    def look(self, name: str) -> RolloutState:
        """Evaluate a rollout; when this returns, its verdict is in the log, or it is a hold."""
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

    def open(self, name: str) -> None:
        """Become the evaluator of a rollout. Raises StoreError if another process is, or nothing can be stored."""
        self._log_of(self._rollouts[name], self.wall_clock_ns())

    def begin(self, name: str, stage: str | None, *, is_settled: bool = False) -> StageAnswered:
        """Begin a stage of a rollout if it may begin, with None the next one; return whether it has begun, which is
        then in the log. With `is_settled`, the stage has begun before, and its share is in effect only now: it is
        judged by the turns from now on."""
        rollout = self._rollouts[name]
        try:
            if rollout.log is not None:
                rollout.log.refresh()
            step = self._settled if is_settled else self._begin
            status, sentence = step(rollout, stage)
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
        verdict = look(
            self.reader.rollout_turns, plan, history, now, objectives=self.objectives, others=self._others(rollout)
        )
        entry = log.append(plan, verdict)
        after = verdict.next_stage
        if verdict.verdict == "promote" and after is not None and rollout.setting.next_stage == "on-promotion":
            log.move(after.name, now)
            return self._look(rollout, now)  # of the new stage, which has no turn yet
        return _state_of(plan, verdict, log.history, entry)

    def _begin(self, rollout: _Evaluated, stage: str | None) -> tuple[int, str]:
        state, log = rollout.state, rollout.log
        if state is None or log is None:
            return UNAVAILABLE, "the rollout has not been evaluated yet; ask again"
        if not state.is_kept:
            return REFUSED, state.sentence
        plan, history, now = rollout.plan, log.history, self.wall_clock_ns()
        if stage is not None and not any(known.name == stage for known in plan.stages):
            return UNKNOWN, f"there is no stage {stage!r:.80}; known are {', '.join(state.stages)}"
        if history.is_rolled_back or history.fingerprint != plan.fingerprint or self._others(rollout):
            return REFUSED, state.sentence
        is_first = history.stage == plan.stages[0].name and stage in (None, history.stage)
        if is_first and log.kept.moves == 0 and not any(look.candidate_turns for look in history.looks):
            # No caller has the change yet: the first share needs no verdict, only a plan that can be evaluated.
            log.move(history.stage, now, self.asker)
            return BEGUN, f"the stage {history.stage} begins"
        if stage == history.stage:
            return BEGUN, f"the rollout is at stage {stage} already"
        return self._after_promotion(rollout.plan, state, log, stage)

    def _settled(self, rollout: _Evaluated, stage: str | None) -> tuple[int, str]:
        """Judge a stage by the turns from now on, but only once: the start must not be moved until the turns fit."""
        state, log = rollout.state, rollout.log
        if state is None or log is None:
            return UNAVAILABLE, "the rollout has not been evaluated yet; ask again"
        history = log.history
        if not state.is_kept or history.is_rolled_back or history.fingerprint != rollout.plan.fingerprint:
            return REFUSED, state.sentence
        if stage != history.stage:
            return REFUSED, f"the rollout is at stage {history.stage}; only a stage that has begun can be settled"
        if log.kept.begins_here > 1:
            since = history.stage_since_unix_ns
            known = "" if since is None else f" since {moment(since)}"
            return BEGUN, f"the turns of stage {stage} count{known}"
        if any(look.verdict != "hold" for look in history.looks if look.stage == stage):
            return REFUSED, state.sentence
        log.move(history.stage, self.wall_clock_ns(), self.asker)
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
        log.move(after.name, now, self.asker)
        return BEGUN, f"the stage {after.name} begins: {history.stage} was promoted"

    def _log_of(self, rollout: _Evaluated, now: int) -> RolloutLog:
        if rollout.log is None:
            rollout.log = RolloutLog(self.store, rollout.plan, rollout.text, now, self.name)
        rollout.log.refresh()
        return rollout.log

    def _plan(self, rollout: _Evaluated) -> RolloutPlan:
        """The plan in its file at the moment. Raises ConfigError if the file has none, or that of another rollout."""
        file = rollout.setting.plan_file
        plan, text = read_plan(Path(file), self.objectives)
        if plan.name != rollout.setting.name:
            raise ConfigError(file, [f"the plan was edited: it is of {plan.name} now; restore its name"])
        rollout.plan, rollout.text = plan, text
        return plan

    def _others(self, rollout: _Evaluated) -> tuple[RolloutPlan, ...]:
        """Return the plans that conflict with this one."""
        plans = (other.plan for other in self._rollouts.values() if other is not rollout)
        return tuple(plan for plan in plans if conflicts([rollout.plan, plan]))


def _stage_of(rollout: _Evaluated) -> str:
    return rollout.log.history.stage if rollout.log is not None else rollout.plan.stages[0].name


def _state_of(plan: RolloutPlan, verdict: GateVerdict, history: RolloutHistory, entry: RolloutEntry) -> RolloutState:
    names = tuple(stage.name for stage in plan.stages)
    promoted = {look.stage for look in history.looks if look.verdict == "promote"}
    before = names[: names.index(history.stage)]
    holds = verdict.verdict != "roll_back" and history.fingerprint == plan.fingerprint
    content = rollout_verdict(plan, verdict)
    return RolloutState(
        EvaluatedVerdict(
            rollout=plan.name, at_unix_ns=entry.at_unix_ns, sequence=entry.sequence, **msgspec.structs.asdict(content)
        ),
        history.stage,
        names,
        kept_unix_ns=entry.at_unix_ns,
        promoted=tuple(name for name in before if name in promoted) if holds else (),
        primary=next((check for check in content.checks if check.name == plan.primary.name), None),
    )


def _held(rollout: _Evaluated, why: str, now: int) -> RolloutState:
    """A hold that is not stored: it promotes nothing and rolls nothing back."""
    plan, before = rollout.plan, rollout.state
    history = rollout.log.history if rollout.log is not None else None
    stage = next(
        (known for known in plan.stages if history is not None and known.name == history.stage), plan.stages[0]
    )
    held = EvaluatedVerdict(
        rollout=rollout.setting.name,
        at_unix_ns=now,
        sequence=None,
        verdict="hold",
        sentence=f"hold {plan.candidate} at stage {stage.name}: {why}",
        reasons=(why,),
        turns_needed=None,
        plan=VerdictPlan(plan.name, plan.fingerprint),
        stage=stage.name,
        share=stage.share,
        cohorts=None,
        looks=0 if history is None else len(history.looks),
    )
    kept_unix_ns = None if before is None else before.kept_unix_ns
    return RolloutState(held, stage.name, tuple(stage.name for stage in plan.stages), kept_unix_ns)
