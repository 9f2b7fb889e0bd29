"""`voiceprobe rollout run` and `rollout watch`.

`run` looks at a stage, keeps the verdict, and changes the share as far as verdicts allow; `watch` changes nothing.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from corpora.output_paths import unwritable_folder
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.display import RolloutClock, RolloutView, live_rollout
from loadtest.rollout.runner import EvaluatedRollout, RolloutHere, RolloutRunner, SidecarVerdicts
from loadtest.rollout.share_changes import share_changer
from loadtest.run.interruption import Interruption
from loadtest.run.report import opened_store
from loadtest.run.rollout_check import EXIT_CODES, kept_history, moment_unix_ns, read_plans, require_beginning
from telemetry.client_tls import sidecar_token
from telemetry.model.errors import StoreError
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.rollout.gate import GateVerdict, first_history
from telemetry.rollout.plan import RolloutHistory, RolloutPlan
from telemetry.rollout.verdict import rollout_verdict
from telemetry.sidecar_client import SidecarClient
from telemetry.store.questions.rollouts import look
from telemetry.store.reader import StoreReader, is_address


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


@dataclass(frozen=True, slots=True)
class RolloutRunRequest:
    """The request for a rollout. `log` keeps the verdicts (None: the store does, or the sidecar at its address);
    `every_s` lies between two looks; `at_most_s` is how long to go on, None for as long as it takes. `also` are plans
    that are evaluated at the same time."""

    plan: Path
    store: str
    slo: Path | None = None
    log: Path | None = None
    every_s: float = 10.0
    at_most_s: float | None = None
    also: tuple[Path, ...] = ()


def run_rollout(request: RolloutRunRequest, console: Console) -> ExitCode:
    """Carry a rollout along. Raises UsageError, ConfigError, StoreError."""
    objectives = load_objectives(request.slo)
    plan, others = read_plans((request.plan, *request.also), objectives, interval_faults(request.every_s))
    change = share_changer(plan, request.plan)
    with ExitStack() as stack:
        if request.log is not None and (fault := unwritable_folder(request.log / "rollouts")):
            raise UsageError(f"--log: {fault}")
        clock = RolloutClock(stack.enter_context(Interruption()))
        rollout: EvaluatedRollout | None = _sidecar_verdicts(request, plan.name)
        if rollout is None:
            files = [*zip((plan.name, *(other.name for other in others)), (request.plan, *request.also), strict=True)]
            reader = stack.enter_context(opened_store(request.store))
            log = request.log or Path(request.store)
            here = RolloutHere(files, log, reader, objectives, unix_ns=clock.unix_ns, every_s=request.every_s)
            rollout = stack.enter_context(closing(here))
        view = stack.enter_context(live_rollout(plan, console, clock.unix_ns))
        runner = RolloutRunner(plan, rollout, change, clock, view, request.every_s)
        code = runner.run(request.at_most_s)
    if code in (ExitCode.INTERRUPTED, ExitCode.UNDECIDED):
        stage = runner.placed or plan.stages[0].name
        console.print(f"the rollout stays at stage {stage}; the same command goes on with it", soft_wrap=True)
    return code


def _sidecar_verdicts(request: RolloutRunRequest, name: str) -> SidecarVerdicts | None:
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
    """Return what is wrong with the time between two looks."""
    return [] if every_s > 0 else [f"--every {every_s:g}s is out of range: give more than 0"]
