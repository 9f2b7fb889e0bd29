"""Carries a rollout along by its verdicts: the share of a stage is changed after the evaluator has said that the stage
begins, and in no other way.

There is nothing to keep here: a process that continues gives the stage at which the rollout is its share again, which
does no harm.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.clock import InterruptedRolloutError, RolloutClock
from loadtest.rollout.evaluated import EvaluatedRollout
from loadtest.rollout.share_changes import ChangeFailedError, ChangeShare, ShareUnchangedError
from loadtest.rollout.showing import RolloutView
from telemetry.model.errors import StoreError
from telemetry.rollout.plan import RolloutPlan, Stage, moment
from telemetry.sidecar.rollouts.evaluation import EvaluatedVerdict

_EDITED: Final = "restore it, or begin a rollout of another name"


@dataclass(slots=True)
class RolloutRunner:
    """Carries one rollout along. `placed` is the stage whose share is in effect by it."""

    plan: RolloutPlan
    rollout: EvaluatedRollout
    change: Callable[[ChangeShare], str]
    clock: RolloutClock
    show: RolloutView
    every_s: float
    placed: str | None = field(default=None)
    _has_changed: bool = field(default=False)

    def run(self, at_most_s: float | None = None) -> ExitCode:
        """Go on until the rollout has ended, somebody interrupts it, or the time is over.

        Raises UsageError where another plan of this name is evaluated, ChangeFailedError where the first stage cannot
        be given its share.
        """
        began_s = self.clock.monotonic_s()
        try:
            while True:
                code = self._step()
                if code is not None:
                    return code
                if at_most_s is not None and self.clock.monotonic_s() - began_s >= at_most_s:
                    return ExitCode.UNDECIDED
                self._wait(self.every_s)
        except InterruptedRolloutError:
            return ExitCode.INTERRUPTED

    def _step(self) -> ExitCode | None:
        """One look; the code with which the rollout ended, if it has."""
        try:
            seen = self.rollout.verdict()
            self._same_plan(seen)
            self.show.verdict(seen)
            if seen.verdict == "roll_back":
                return self._take_back(seen)
            if seen.sequence is None:
                return None
            return self._go_on(seen)
        except StoreError as error:
            self.show.line(str(error))
            return None

    def _go_on(self, seen: EvaluatedVerdict) -> ExitCode | None:
        stage = self.plan.stage(seen.stage)
        begins = self.plan.begins_unix_ns
        if begins is not None and self.clock.unix_ns() < begins:
            self.show.line(f"the rollout begins at {moment(begins)}")
            return None
        if self.placed != stage.name:
            is_placed = self._place(stage)
            return self._complete() if is_placed and not stage.has_control else None
        if seen.verdict != "promote":
            return None
        after = self.plan.stage_after(stage.name)
        if after is None:
            return self._complete()
        return self._complete() if self._place(after) and not after.has_control else None

    def _place(self, stage: Stage) -> bool:
        """Return whether the stage may begin and its share is in effect."""
        answer = self.rollout.begin(stage.name)
        if not answer.may_begin:
            self.show.line(f"the stage {stage.name} does not begin: {answer.sentence}")
            return False
        step = ChangeShare(stage)
        try:
            done = self.change(step)
        except ShareUnchangedError as error:
            if not self._has_changed and stage == self.plan.stages[0]:
                raise ChangeFailedError(f"the stage {stage.name} does not begin: {error}") from None
            self.show.line(f"the share of {self.plan.candidate} is not changed to {stage.share:.4g}: {error}")
            return False
        self._has_changed = True
        self.show.line(f"stage {stage.name} is prepared: {done}")
        if not stage.has_control:
            self.placed = stage.name
            return True
        self._wait(self.plan.apply.settle.seconds if self.plan.apply is not None else 0.0)
        settled = self.rollout.begin(stage.name, is_settled=True)
        self.placed = stage.name
        if not settled.may_begin:
            self.show.line(f"the turns of stage {stage.name} are not counted again from now: {settled.sentence}")
        return True

    def _take_back(self, seen: EvaluatedVerdict) -> ExitCode | None:
        step = ChangeShare(self.plan.stage(seen.stage), is_back=True)
        try:
            self.show.line(f"the candidate is taken back: {self.change(step)}")
        except ShareUnchangedError as error:
            self.show.line(f"the share of {self.plan.candidate} is not changed to 0: {error}")
            return None
        self.show.line(f"rolled back: {self.plan.candidate} gets no callers any more")
        return ExitCode.OBJECTIVE_MISSED

    def _complete(self) -> ExitCode:
        self.show.line(f"complete: {self.plan.candidate} was promoted through every stage")
        return ExitCode.OK

    def _same_plan(self, seen: EvaluatedVerdict) -> None:
        if seen.plan.fingerprint == self.plan.fingerprint:
            return
        if self.placed is None:
            raise UsageError(
                f"the sidecar evaluates another plan of the name {self.plan.name}: give both the same file, and the "
                "same objectives (--slo)"
            )
        raise StoreError(f"the plan of {self.plan.name} was edited: {_EDITED}")

    def _wait(self, seconds: float) -> None:
        if self.clock.wait(seconds):
            raise InterruptedRolloutError
