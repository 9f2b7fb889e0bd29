"""`voiceprobe rollout watch`: looks at a rollout again and again, and changes nothing."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from loadtest.exit_codes import ExitCode
from loadtest.rollout.clock import RolloutClock
from loadtest.rollout.job import interval_faults
from loadtest.rollout.showing import RolloutView, live_rollout
from loadtest.run.interruption import Interruption
from loadtest.run.report import opened_store
from loadtest.run.rollout_check import EXIT_CODES, kept_history, moment_unix_ns, require_beginning
from loadtest.run.rollout_plans import read_plans
from telemetry.model.errors import StoreError
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.rollout.gate import GateVerdict, first_history
from telemetry.rollout.plan import RolloutHistory, RolloutPlan
from telemetry.rollout.verdict import rollout_verdict
from telemetry.store.questions.rollouts import look
from telemetry.store.reader import StoreReader


@dataclass(frozen=True, slots=True)
class RolloutWatchRequest:
    """The request for a live view. `every_s` lies between two looks."""

    plan: Path
    store: str
    slo: Path | None = None
    stage: str | None = None
    since: str | None = None
    every_s: float = 10.0
    until_verdict: bool = False
    also: tuple[Path, ...] = ()


@dataclass(slots=True)
class RolloutWatcher:
    """Looks at a rollout. Where the store has its log, the stage is where the log is, and moves with it."""

    plan: RolloutPlan
    reader: StoreReader
    objectives: Sequence[Objective]
    others: tuple[RolloutPlan, ...]
    clock: RolloutClock
    show: RolloutView
    asked: RolloutHistory | None = None  # where --stage or --since say it is
    _own: RolloutHistory | None = None

    def look(self) -> GateVerdict:
        """One look. Raises StoreError."""
        history = self._history()
        turns, now = self.reader.rollout_turns, self.clock.unix_ns()
        verdict = look(turns, self.plan, history, now, objectives=self.objectives, others=self.others)
        self._own = verdict.history
        self.show.verdict(rollout_verdict(self.plan, verdict))
        return verdict

    def _history(self) -> RolloutHistory:
        own = self._own
        if self.asked is not None:
            return self.asked if own is None else own
        kept = kept_history(self.plan, self.reader)
        if kept is None:
            return first_history(self.plan, self.clock.unix_ns()) if own is None else own
        if own is None or own.stage != kept.stage or kept.is_rolled_back:
            return kept
        return own


def watch(request: RolloutWatchRequest, console: Console) -> ExitCode:
    """Look until somebody interrupts it, or there is a verdict. Raises UsageError, ConfigError, StoreError."""
    objectives = load_objectives(request.slo)
    plan, others = read_plans((request.plan, *request.also), objectives, interval_faults(request.every_s))
    code = ExitCode.UNDECIDED
    with ExitStack() as stack:
        clock = RolloutClock(stack.enter_context(Interruption()))
        asked = _asked(plan, request, clock.unix_ns())
        reader = stack.enter_context(opened_store(request.store))
        if plan.begins_unix_ns is None and request.since is None and kept_history(plan, reader) is None:
            require_beginning(plan, request.store, is_kept=True)
        view = stack.enter_context(live_rollout(plan, console, clock.unix_ns))
        watcher = RolloutWatcher(plan, reader, objectives, others, clock, view, asked)
        while True:
            try:
                verdict = watcher.look()
            except StoreError as error:
                view.line(f"no look could be taken: {error}")
            else:
                code = EXIT_CODES[verdict.verdict]
                if request.until_verdict and verdict.verdict != "hold":
                    return code
            if clock.wait(request.every_s):
                return code


def _asked(plan: RolloutPlan, request: RolloutWatchRequest, now_unix_ns: int) -> RolloutHistory | None:
    since = None if request.since is None else moment_unix_ns(request.since)
    if request.stage is None and since is None:
        return None
    first = first_history(plan, now_unix_ns)
    stage = plan.stage(first.stage if request.stage is None else request.stage)
    return first.at_stage(stage.name, first.stage_since_unix_ns if since is None else since)
