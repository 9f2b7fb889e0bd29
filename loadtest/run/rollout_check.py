"""`voiceprobe rollout check`: one look at a staged rollout."""

import fcntl
import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from corpora.output_paths import unwritable
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.reports import rollout as reports
from loadtest.reports.rollout import check_table
from loadtest.run.json_file import write_json, write_result
from loadtest.run.report import opened_store
from telemetry.model.errors import ConfigError
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.rollout.gate import GateVerdict, first_history
from telemetry.rollout.plan import RolloutHistory, RolloutPlan, decode_history, encode_history
from telemetry.rollout.sentences import above_control
from telemetry.rollout.verdict import RolloutVerdict, rollout_verdict
from telemetry.sidecar.rollouts.settings import read_plan
from telemetry.store.database import is_at_rest
from telemetry.store.questions.rollouts import look
from telemetry.store.reader import StoreReader, is_address


def read_plans(
    files: Sequence[Path], objectives: Sequence[Objective], known_faults: Sequence[str] = ()
) -> tuple[RolloutPlan, tuple[RolloutPlan, ...]]:
    """The plan of the first file, and those of the others. Raises UsageError with a line for each fault of the files,
    and for those that are known already."""
    faults: list[str] = []
    plans: list[RolloutPlan] = []
    for file in files:
        try:
            plans.append(read_plan(file, objectives)[0])
        except ConfigError as error:
            faults += [f"{error.where}: {fault}" for fault in error.faults]
    faults += known_faults
    if faults:
        raise UsageError("\n".join(faults))
    plan, *others = plans
    return plan, tuple(others)


# A look takes about a second; one over a large store, over the network, some tens.
WAIT_S: Final = 60.0
_AGAIN_S: Final = 0.1


@contextmanager
def one_at_a_time(file: Path | None, wait_s: float = WAIT_S) -> Generator[None]:
    """Wait until no other look reads or writes this history, so that none is lost. None: there is nothing to wait for.

    Raises UsageError where another one does not end, and where nothing can be locked. The lock is an empty file next to
    the history, because the history itself is replaced.
    """
    if file is None:
        yield
        return
    lock = file.with_name(f".{file.name}.lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"{lock} cannot be opened: {error.strerror or error}; make the folder writable") from None
    try:
        _lock(descriptor, file, wait_s)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, file: Path, wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end_s:
                raise UsageError(
                    f"{file} is in use by another look that has not ended within {wait_s:g} s; wait for it, or end it"
                ) from None
            time.sleep(_AGAIN_S)
        except OSError as error:
            raise UsageError(f"{file} cannot be locked: {error.strerror or error}; put it on another disk") from None
        else:
            return


def read_history(plan: RolloutPlan, file: Path | None, now_unix_ns: int) -> RolloutHistory:
    """The history of a file; a first one, which begins now, where there is none yet. Raises UsageError, ConfigError."""
    if file is None:
        return first_history(plan, now_unix_ns)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return first_history(plan, now_unix_ns)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from None
    return decode_history(content, str(file))


EXIT_CODES: Final = {
    "promote": ExitCode.OK,
    "roll_back": ExitCode.OBJECTIVE_MISSED,
    "hold": ExitCode.UNDECIDED,
}


@dataclass(frozen=True, slots=True)
class RolloutCheckRequest:
    """The request for a check: the plan, where the turns are, and where the result goes. `also` are plans that are
    evaluated at the same time."""

    plan: Path
    store: str
    slo: Path | None = None
    stage: str | None = None
    since: str | None = None
    history_file: Path | None = None
    also: tuple[Path, ...] = ()
    json_file: Path | None = None
    junit_file: Path | None = None
    markdown_file: Path | None = None


def check(request: RolloutCheckRequest, console: Console, *, now_unix_ns: int | None = None) -> ExitCode:
    """Look once, print the verdict, write what is asked for. Raises UsageError, StoreError, OutputError."""
    objectives = load_objectives(request.slo)
    outputs = (request.history_file, request.json_file, request.junit_file, request.markdown_file)
    unusable = [fault for file in outputs if file is not None and (fault := unwritable(file))]
    plan, others = read_plans((request.plan, *request.also), objectives, unusable)
    with one_at_a_time(request.history_file):
        # Before the wait for another look it would lie before that look, as if the clock had gone back.
        now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
        with opened_store(request.store) as reader:
            known = _history(plan, request, reader, now_unix_ns)
            history = _at_stage(plan, request, known, now_unix_ns)
            verdict = look(reader.rollout_turns, plan, history, now_unix_ns, objectives=objectives, others=others)
        # Kept before anybody hears of it: a roll back that was printed stays one.
        if request.history_file is not None and verdict.history.fingerprint == plan.fingerprint:
            write_result(request.history_file, encode_history(verdict.history))
    result = rollout_verdict(plan, verdict)
    _print(plan, verdict, result, console)
    if request.json_file is not None:
        write_json(request.json_file, msgspec.to_builtins(result))
    if request.junit_file is not None:
        write_result(request.junit_file, reports.as_junit(plan, verdict))
    if request.markdown_file is not None:
        write_result(
            request.markdown_file, reports.as_markdown(plan, result, verdict.history.stage_since_unix_ns).encode()
        )
    return EXIT_CODES[verdict.verdict]


def _history(plan: RolloutPlan, request: RolloutCheckRequest, reader: StoreReader, now_unix_ns: int) -> RolloutHistory:
    """Return what is known of earlier looks: of the file, else of the store where no flag says what is judged, else
    nothing. Raises UsageError where nothing says when the rollout began, and no look could."""
    if request.history_file is None:
        kept = kept_history(plan, reader) if request.stage is None and request.since is None else None
        known = first_history(plan, now_unix_ns) if kept is None else kept
    else:
        known = read_history(plan, request.history_file, now_unix_ns)
    if not known.looks and request.since is None and known.stage_since_unix_ns == now_unix_ns:
        require_beginning(plan, request.store, is_kept=request.history_file is not None)
    return known


def require_beginning(plan: RolloutPlan, store: str, *, is_kept: bool) -> None:
    """Raise UsageError where a rollout cannot begin with a look at this store: nothing will come to it, or the next
    look does not know the moment."""
    if not is_address(store) and is_at_rest(Path(store)):
        why = f"{store} is at rest, so that no turn can come after this look;"
    elif not is_kept:
        why = "each look would be the first one without --history;"
    else:
        return
    raise UsageError(
        f"nothing says when the rollout {plan.name} began, and turns of before it are not its own: {why} give --since "
        "2026-11-02T08:00:00Z, or write begins = 2026-11-02T08:00:00Z into the plan"
    )


def kept_history(plan: RolloutPlan, reader: StoreReader) -> RolloutHistory | None:
    """The history that the store keeps of a rollout; None where it keeps none. Raises StoreError."""
    kept = reader.rollout_history(plan.name)
    return None if kept is None else kept.history


def _at_stage(
    plan: RolloutPlan, request: RolloutCheckRequest, history: RolloutHistory, now_unix_ns: int
) -> RolloutHistory:
    since = None if request.since is None else moment_unix_ns(request.since)
    if request.stage is None or request.stage == history.stage:
        return history if since is None or history.looks else history.at_stage(history.stage, since)
    plan.stage(request.stage)
    last = history.last_look
    if last is None:
        return history.at_stage(request.stage, since if since is not None else history.stage_since_unix_ns)
    after = plan.stage_after(history.stage) if history.fingerprint == plan.fingerprint else None
    if last.verdict != "promote" or after is None or after.name != request.stage:
        raise UsageError(
            f"--stage {request.stage}: the rollout is at stage {history.stage}, and its last verdict was "
            f"{last.verdict.replace('_', ' ')}; a stage begins after the one before it was promoted"
        )
    return history.at_stage(request.stage, since if since is not None else now_unix_ns)


def moment_unix_ns(text: str) -> int:
    """The moment that --since gives. Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError(f"--since {text!r} is not a moment with its time zone: write it as 2026-11-02T08:00:00Z")
    return round(moment.timestamp() * 1e6) * 1000


def _print(plan: RolloutPlan, verdict: GateVerdict, result: RolloutVerdict, console: Console) -> None:
    lines = [f"  {line}" for line in reports.context_lines(plan, result, verdict.history.stage_since_unix_ns)]
    for line in (verdict.sentence, *lines):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    if result.checks:
        console.print(check_table(result.checks, plan), markup=False)
    for slice_verdict in verdict.slices:
        if slice_verdict.is_worse:
            where = reports.slice_name(slice_verdict.dimension, slice_verdict.value)
            line = f"worse at {where}: {above_control(slice_verdict.result)}"
            console.print(line, soft_wrap=True, markup=False, highlight=False)
