"""`voiceprobe rollout run`: looks at a stage, keeps the verdict, and moves the share along as far as verdicts allow."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from rich.console import Console

from corpora.output_paths import unwritable
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.clock import InterruptedRolloutError, InterruptibleClock, RolloutClock
from loadtest.rollout.kept import RolloutKeeper
from loadtest.rollout.share_changes import ChangeFailedError, ShareUnchangedError, share_changer
from loadtest.rollout.showing import RolloutLines, RolloutView, live_rollout
from loadtest.rollout.sidecar_run import SidecarRolloutRunner
from loadtest.rollout.sidecar_verdicts import SidecarVerdicts
from loadtest.rollout.steps import ChangeShare, LookAtStage, RolloutEnded, next_step
from loadtest.run.interruption import Interruption
from loadtest.run.report import opened_store
from loadtest.run.rollout_plans import read_plans
from telemetry.client_tls import sidecar_token
from telemetry.model.errors import StoreError
from telemetry.model.formatting import NS_PER_S
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.rollout.gate import GateVerdict, decide
from telemetry.rollout.plan import RolloutPlan
from telemetry.sidecar_client import SidecarClient
from telemetry.store.questions.rollouts import evidence_of, question_of
from telemetry.store.reader import StoreReader, is_address

# A promotion is acted upon at once; one that a process left behind is looked at again after so many intervals.
FRESH_INTERVALS: Final = 3
END_CODES: Final = {"complete": ExitCode.OK, "rolled_back": ExitCode.OBJECTIVE_MISSED}


@dataclass(frozen=True, slots=True)
class RolloutRunRequest:
    """What is asked for. `log` keeps the verdicts (None: the store does, or the sidecar at its address); `every_s` lies
    between two looks; `at_most_s` is how long to go on, None for as long as it takes. `also` are plans that are
    evaluated at the same time."""

    plan: Path
    store: str
    slo: Path | None = None
    log: Path | None = None
    every_s: float = 10.0
    at_most_s: float | None = None
    also: tuple[Path, ...] = ()


class TurnsOfRollout(Protocol):
    """What a rollout is judged by."""

    def verdict(self, plan: RolloutPlan, keeper: RolloutKeeper) -> GateVerdict:
        """One look. Raises StoreError."""
        ...


@dataclass(frozen=True, slots=True)
class StoredRollout:
    """A rollout judged by the turns of a store."""

    reader: StoreReader
    objectives: Sequence[Objective]
    others: tuple[RolloutPlan, ...]
    clock: RolloutClock

    def verdict(self, plan: RolloutPlan, keeper: RolloutKeeper) -> GateVerdict:
        """See `TurnsOfRollout`."""
        history = keeper.kept.history
        found = self.reader.rollout_turns(question_of(plan, history.stage_since_unix_ns, self.objectives))
        return decide(plan, evidence_of(found, self.others), history, self.clock.unix_ns())


@dataclass(slots=True)
class RolloutRunner:
    """Carries one rollout along. `show` is given every verdict and every change, before and after it is made."""

    plan: RolloutPlan
    keeper: RolloutKeeper
    turns: TurnsOfRollout
    change: Callable[[ChangeShare], str]
    clock: RolloutClock
    show: RolloutView
    every_s: float

    def run(self, at_most_s: float | None = None) -> ExitCode:
        """Go on until the rollout has ended, somebody interrupts it, or the time is over.

        Raises ChangeFailedError where the first stage cannot begin, StoreError where nothing can be kept.
        """
        try:
            return self._go_on(at_most_s)
        except InterruptedRolloutError:
            return ExitCode.INTERRUPTED

    def _go_on(self, at_most_s: float | None) -> ExitCode:
        began_s = self.clock.monotonic_s()
        while True:
            step = next_step(self.plan, self.keeper.kept, self.clock.unix_ns(), self._fresh_ns)
            if isinstance(step, RolloutEnded):
                self.show.ended(step)
                return END_CODES[step.state]
            if self._make(step) if isinstance(step, ChangeShare) else self._look():
                continue
            if at_most_s is not None and self.clock.monotonic_s() - began_s >= at_most_s:
                return ExitCode.UNDECIDED
            self._wait(self.every_s)

    def _wait(self, seconds: float) -> None:
        if self.clock.wait(seconds):
            raise InterruptedRolloutError

    @property
    def _fresh_ns(self) -> int:
        return round(FRESH_INTERVALS * self.every_s * NS_PER_S)

    def _look(self) -> bool:
        """Whether the verdict calls for a step at once."""
        try:
            verdict = self.turns.verdict(self.plan, self.keeper)
        except StoreError as error:
            self.show.trouble(f"no look could be taken: {error}")
            return False
        self.keeper.keep_verdict(verdict)
        self.show.verdict(verdict)
        step = next_step(self.plan, self.keeper.kept, self.clock.unix_ns(), self._fresh_ns)
        return not isinstance(step, LookAtStage)

    def _make(self, step: ChangeShare) -> bool:
        """Whether the change was made and, where it is one, the stage has begun."""
        self.keeper.keep_change(step, "asked", self.clock.unix_ns())
        try:
            done = self.change(step)
        except ShareUnchangedError as error:
            self.keeper.keep_change(step, "failed", self.clock.unix_ns())
            if not self.keeper.kept.moves and not step.is_back:
                raise ChangeFailedError(f"the stage {step.stage.name} does not begin: {error}") from None
            self.show.trouble(f"the share of {self.plan.candidate} is not changed to {step.share:.4g}: {error}")
            return False
        self.keeper.keep_change(step, "made", self.clock.unix_ns())
        self.show.changed(step, done)
        if step.is_back:
            return True
        settle = self.plan.apply.settle.seconds if self.plan.apply is not None else 0.0
        self._wait(settle)
        self.keeper.keep_begin(step.stage.name, self.clock.unix_ns())
        return True


def run_rollout(request: RolloutRunRequest, console: Console) -> ExitCode:
    """Carry a rollout along. Raises UsageError, ConfigError, StoreError."""
    objectives = load_objectives(request.slo)
    plan, others = read_plans((request.plan, *request.also), objectives, interval_faults(request.every_s))
    text = request.plan.read_text(encoding="utf-8")
    change = share_changer(plan, request.plan)
    with ExitStack() as stack:
        if request.log is not None and (fault := unwritable(request.log / "rollouts" / "verdicts")):
            raise UsageError(f"--log: {fault}")
        clock = InterruptibleClock(stack.enter_context(Interruption()))
        rollout = _of_sidecar(request, plan.name)
        if rollout is not None:
            lines = RolloutLines(plan, console, clock.unix_ns)
            runner = SidecarRolloutRunner(plan, rollout, change, clock, lines, request.every_s)
            code = runner.run(request.at_most_s)
            stage = runner.placed or plan.stages[0].name
        else:
            folder = request.log or Path(request.store)
            reader = stack.enter_context(opened_store(request.store))
            keeper = stack.enter_context(RolloutKeeper(folder, plan, text, clock.unix_ns()))
            turns = StoredRollout(reader, objectives, others, clock)
            view = stack.enter_context(live_rollout(plan, console, clock.unix_ns))
            code = RolloutRunner(plan, keeper, turns, change, clock, view, request.every_s).run(request.at_most_s)
            stage = keeper.kept.history.stage
    if code in (ExitCode.INTERRUPTED, ExitCode.UNDECIDED):
        console.print(f"the rollout stays at stage {stage}; the same command goes on with it", soft_wrap=True)
    return code


def _of_sidecar(request: RolloutRunRequest, name: str) -> SidecarVerdicts | None:
    """The rollout as the sidecar at the store's address evaluates it; None where verdicts are made here. One of both
    decides. Raises UsageError, StoreError."""
    if not is_address(request.store):
        return None
    rollout = SidecarVerdicts(SidecarClient(request.store, sidecar_token()), name)
    is_evaluated = rollout.is_evaluated()
    if is_evaluated and request.log is not None:
        raise UsageError(f"--log: the sidecar evaluates the rollout {name} and keeps its verdicts; leave --log out")
    if is_evaluated and request.also:
        raise UsageError("--also: the sidecar looks at all of its plans together; leave --also out")
    if not is_evaluated and request.log is None:
        raise UsageError(
            f"the sidecar at {request.store} does not evaluate the rollout {name}: start it with --rollout, or name a "
            "folder that keeps the verdicts with --log"
        )
    return rollout if is_evaluated else None


def interval_faults(every_s: float) -> list[str]:
    """What is wrong with the time between two looks."""
    return [] if every_s > 0 else [f"--every {every_s:g}s is out of range: give more than 0"]
