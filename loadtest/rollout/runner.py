"""A rollout carried along by its verdicts, which this process makes, or the sidecar at an address.

The share of a stage is changed after the evaluator has said that the stage begins, and in no other way. There is
nothing to keep here: a process that continues gives the stage at which the rollout is its share again, which does no
harm.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.display import InterruptedRolloutError, RolloutClock, RolloutView
from loadtest.rollout.share_changes import ChangeFailedError, ChangeShare, ShareUnchangedError
from telemetry.model.errors import StoreError
from telemetry.model.foreign_text import one_line
from telemetry.objectives.objective import Objective
from telemetry.rollout.plan import RolloutPlan, Stage, moment
from telemetry.sidecar.rollouts.evaluation import BEGUN, EvaluatedVerdict, RolloutEvaluator
from telemetry.sidecar.rollouts.settings import RolloutSetting
from telemetry.sidecar_client import OK, SidecarClient
from telemetry.store.reader import StoreReader

_LONGEST_WORDS: Final = 500
_UNKNOWN: Final = 404
_TEXTS: Final = ("reasons", "notes")
# Who judges, and who lets stages begin.
_DECIDED_BY: Final = ("rollout run", "rollout run")
_REFUSED: Final = 409


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """Whether a stage may begin, and why."""

    may_begin: bool
    sentence: str


class EvaluatedRollout(Protocol):
    """A rollout whose verdicts are kept before they are answered."""

    def verdict(self) -> EvaluatedVerdict:
        """The verdict of now. Raises StoreError."""
        ...

    def begin(self, stage: str, *, is_settled: bool = False) -> StageAnswer:
        """Return whether a stage may begin; if it may, it has. `is_settled`: its share is in effect only now. Raises
        StoreError."""
        ...


class RolloutHere:
    """The first of some rollouts, evaluated by this process, which keeps its verdicts in the store `log`.

    Raises StoreError where another process evaluates it, and where nothing can be kept."""

    def __init__(
        self,
        files: Sequence[tuple[str, Path]],
        log: Path,
        reader: StoreReader,
        objectives: Sequence[Objective],
        *,
        unix_ns: Callable[[], int],
        every_s: float,
    ) -> None:
        settings = [RolloutSetting(name, str(file)) for name, file in files]
        self._name = files[0][0]
        self._evaluator = RolloutEvaluator(log, settings, objectives, reader, unix_ns, every_s, *_DECIDED_BY)
        self._evaluator.open(self._name)

    def close(self) -> None:
        """Release the lock, so that another process can evaluate the rollout."""
        self._evaluator.close()

    def verdict(self) -> EvaluatedVerdict:
        """See `EvaluatedRollout`."""
        return self._evaluator.look(self._name).verdict

    def begin(self, stage: str, *, is_settled: bool = False) -> StageAnswer:
        """See `EvaluatedRollout`."""
        answer = self._evaluator.begin(self._name, stage, is_settled=is_settled)
        return StageAnswer(answer.status == BEGUN, answer.sentence)


class SidecarVerdicts:
    """The rollout `name` of a sidecar. Raises StoreError from any question when the sidecar cannot be reached, has no
    verdict of now, or answers what this version does not understand."""

    def __init__(self, sidecar: SidecarClient, name: str) -> None:
        self._sidecar = sidecar
        self._path = f"/v1/rollouts/{name}"

    def is_evaluated(self) -> bool:
        """Return whether the sidecar evaluates this rollout; also before its first look."""
        answer = self._sidecar.ask("GET", f"{self._path}/verdict")
        if answer.status != _UNKNOWN:
            return True
        if not answer.words:
            raise self._sidecar.refused(answer)
        return False

    def verdict(self) -> EvaluatedVerdict:
        """See `EvaluatedRollout`."""
        answer = self._sidecar.ask("GET", f"{self._path}/verdict")
        if answer.status != OK:
            raise self._sidecar.refused(answer)
        try:
            verdict = msgspec.json.decode(answer.content, type=EvaluatedVerdict)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._sidecar.another_version_error("its verdict", error) from error
        texts = {name: tuple(one_line(line, _LONGEST_WORDS) for line in getattr(verdict, name)) for name in _TEXTS}
        return msgspec.structs.replace(verdict, sentence=one_line(verdict.sentence, _LONGEST_WORDS), **texts)

    def begin(self, stage: str, *, is_settled: bool = False) -> StageAnswer:
        """See `EvaluatedRollout`."""
        content = msgspec.json.encode({"stage": stage, "settled": is_settled})
        answer = self._sidecar.ask("POST", f"{self._path}/stage", content)
        if answer.status not in (OK, _UNKNOWN, _REFUSED) or not answer.words:
            raise self._sidecar.refused(answer)
        return StageAnswer(answer.status == OK, answer.words)


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
