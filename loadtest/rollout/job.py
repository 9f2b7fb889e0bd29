"""`voiceprobe rollout run`: looks at a stage, keeps the verdict, and moves the share along as far as verdicts allow."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from rich.console import Console

from corpora.output_paths import unwritable
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.kept import RolloutKeeper
from loadtest.rollout.share_changes import ShareUnchangedError, share_changer
from loadtest.rollout.showing import RolloutView, live_rollout
from loadtest.rollout.steps import ChangeShare, LookAtStage, RolloutEnded, next_step
from loadtest.run.interruption import Interruption
from loadtest.run.report import opened_store
from loadtest.run.rollout_check import load_plan
from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.formatting import NS_PER_S
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.rollout.gate import GateVerdict, decide
from telemetry.rollout.plan import RolloutPlan
from telemetry.store.reader import StoreReader
from telemetry.store.remote import RemoteStore, is_address
from telemetry.store.rollout_turns import evidence_of, question_of

# A promotion is acted upon at once; one that a process left behind is looked at again after so many intervals.
FRESH_INTERVALS: Final = 3
END_CODES: Final = {"complete": ExitCode.OK, "rolled_back": ExitCode.OBJECTIVE_MISSED}


class _InterruptedError(Exception):
    """Somebody interrupted a wait."""


class ChangeFailedError(UsageError):
    """The share of the first stage could not be given, so nothing has begun."""


@dataclass(frozen=True, slots=True)
class RolloutRunRequest:
    """What is asked for. `log` keeps the verdicts (None: the store does); `every_s` lies between two looks; `at_most_s`
    is how long to go on, None for as long as it takes. `also` are plans that are evaluated at the same time."""

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


class RolloutClock(Protocol):
    """Time, and waiting; tests replace it."""

    def unix_ns(self) -> int:
        """The wall clock."""
        ...

    def monotonic_s(self) -> float:
        """A clock for intervals."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait; whether somebody interrupted it."""
        ...


@dataclass(frozen=True, slots=True)
class InterruptibleClock:
    """The system's clocks."""

    interruption: Interruption

    def unix_ns(self) -> int:
        """See `RolloutClock`."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """See `RolloutClock`."""
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        """See `RolloutClock`."""
        return self.interruption.wait(seconds)


@dataclass(frozen=True, slots=True)
class StoredRollout:
    """A rollout judged by the turns of a store."""

    reader: StoreReader | RemoteStore
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
        except _InterruptedError:
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
            raise _InterruptedError

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
    plan, others = read_plans((request.plan, *request.also), objectives, request.every_s)
    text = request.plan.read_text(encoding="utf-8")
    change = share_changer(plan, request.plan)
    folder = _folder(request)
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        clock = InterruptibleClock(interruption)
        reader = stack.enter_context(opened_store(request.store))
        keeper = stack.enter_context(RolloutKeeper(folder, plan, text, clock.unix_ns()))
        turns = StoredRollout(reader, objectives, others, clock)
        view = stack.enter_context(live_rollout(plan, console, clock.unix_ns))
        code = RolloutRunner(plan, keeper, turns, change, clock, view, request.every_s).run(request.at_most_s)
    if code in (ExitCode.INTERRUPTED, ExitCode.UNDECIDED):
        console.print(
            f"the rollout stays at stage {keeper.kept.history.stage}; the same command goes on with it", soft_wrap=True
        )
    return code


def read_plans(
    files: Sequence[Path], objectives: Sequence[Objective], every_s: float
) -> tuple[RolloutPlan, tuple[RolloutPlan, ...]]:
    """The plan of the first file, and those of the others. Raises UsageError with a line for each fault."""
    faults: list[str] = []
    plans: list[RolloutPlan] = []
    for file in files:
        try:
            plans.append(load_plan(file, objectives))
        except ConfigError as error:
            faults += [f"{error.where}: {fault}" for fault in error.faults]
    if every_s <= 0:
        faults.append(f"--every {every_s:g}s is out of range: give more than 0")
    if faults:
        raise UsageError("\n".join(faults))
    return plans[0], tuple(plans[1:])


def _folder(request: RolloutRunRequest) -> Path:
    """Where the verdicts are kept."""
    if request.log is not None:
        if fault := unwritable(request.log / "rollouts" / "verdicts"):
            raise UsageError(f"--log: {fault}")
        return request.log
    if is_address(request.store):
        raise UsageError("--log is missing: verdicts over a store that is asked over HTTP need a folder of their own")
    return Path(request.store)
