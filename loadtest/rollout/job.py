"""`voiceprobe rollout run`: looks at a stage, keeps the verdict, and moves the share along as far as verdicts allow."""

from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from corpora.output_paths import unwritable_folder
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.clock import RolloutClock
from loadtest.rollout.evaluated import EvaluatedRollout, RolloutHere, SidecarVerdicts
from loadtest.rollout.runner import RolloutRunner
from loadtest.rollout.share_changes import share_changer
from loadtest.rollout.showing import live_rollout
from loadtest.run.interruption import Interruption
from loadtest.run.report import opened_store
from loadtest.run.rollout_plans import read_plans
from telemetry.client_tls import sidecar_token
from telemetry.objectives.slo import load_objectives
from telemetry.sidecar_client import SidecarClient
from telemetry.store.reader import is_address


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
        rollout: EvaluatedRollout | None = _of_sidecar(request, plan.name)
        if rollout is None:
            files = [*zip((plan.name, *(each.name for each in others)), (request.plan, *request.also), strict=True)]
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
    """Return what is wrong with the time between two looks."""
    return [] if every_s > 0 else [f"--every {every_s:g}s is out of range: give more than 0"]
