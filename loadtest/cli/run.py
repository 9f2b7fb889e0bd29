"""`voiceprobe run`: a swarm against an endpoint, seen live, summed up from the store.

The run's own sidecar is started where none is named. Locust is a process of its own. The summary is a question to the
store, as the dashboard's figures are.
"""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.live import Live

from corpora.errors import CorpusError
from corpora.progress import progress_bar
from loadtest.caller.address import public_target
from loadtest.caller.engine import Engine
from loadtest.caller.plan import Limits
from loadtest.cli import processes
from loadtest.cli.calibrations import citation
from loadtest.cli.interruption import Interruption
from loadtest.cli.json_file import write_json
from loadtest.cli.losses import lost_processes
from loadtest.cli.request import CheckedRun
from loadtest.cli.sidecars import Sidecar, deliver_all, destination
from loadtest.errors import EndpointUnreachable, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.reports.calibration_citing import Citation
from loadtest.reports.ending import Ending, ending_for
from loadtest.reports.facts import CorpusFacts, ProfileFacts, RunFacts
from loadtest.reports.progress import LiveFacts, live_view
from loadtest.reports.summary import summary_object
from loadtest.reports.terminal import final_view
from loadtest.swarm.options import as_arguments
from loadtest.swarm.preparation import render_ahead
from loadtest.swarm.settings import SwarmSettings
from loadtest.swarm.worker import new_run_id
from telemetry.errors import StoreError
from telemetry.slo import Verdict, judge
from telemetry.store.answers import Filter, Summary
from telemetry.store.reader import StoreReader

STOP_TIMEOUT_S: Final = 30
LEAST_SPAWN_RATE: Final = 10.0  # so that a few callers all come at once, without a ramp
LOOK_EVERY_S: Final = 2.0
SAY_EVERY_S: Final = 10.0
SETTLE_S: Final = 10.0
LOCUST_PORT: Final = 5557
WORKERS_READY_S: Final = 60


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run."""

    facts: RunFacts
    summary: Summary
    verdicts: list[Verdict]
    ending: Ending


def preflight(checked: CheckedRun) -> None:
    """Open one session and close it: a target that cannot be reached is said before a swarm is sent.

    Raises EndpointUnreachable, UsageError.
    """
    settings = checked.request.settings
    options = CallerOptions(token=settings.token, model=settings.model, headers=settings.headers)
    protocol = registry.make_caller(settings.protocol, options)
    engine = Engine(
        frame_ns=protocol.capabilities.frame_ms * 1_000_000,
        onset_preset=settings.onset,
        tls=settings.tls,
    )
    try:
        engine.probe(protocol, protocol.upgrade(settings.host, None), Limits())
    except EndpointUnreachable as error:
        raise EndpointUnreachable(settings.redactor.text(str(error))) from None
    finally:
        engine.close()


def run(
    checked: CheckedRun,
    console: Console,
    *,
    sidecar: Sidecar | None = None,
    dashboard_url: str | None = None,
    watch: Callable[[], None] = lambda: None,
) -> RunResult:
    """Carry a checked request out. `watch` is called every other second and may raise to end the run.

    Raises ProcessFailedError where a process of ours fails.
    """
    request = checked.request
    _render_ahead(request.settings)
    run_id = request.settings.run_id or new_run_id()
    started_unix_ns = time.time_ns()
    with ExitStack() as stack:
        own, notes = destination(checked, sidecar, stack)
        cited = citation(request.users)
        swarm = _start_swarm(checked, run_id, request.settings.sidecar if notes else own.url, cited)
        stack.enter_context(processes.ending(swarm))
        began = time.monotonic()
        interrupted = _follow(checked, run_id, own.store, swarm, console, notes, watch)
        elapsed_s = time.monotonic() - began
        killed_by = _check_ending(swarm, interrupted)
        spooled = deliver_all(checked, own, stack)
        with StoreReader(own.store) as reader:
            _settle(reader, run_id)
            facts = _facts(
                checked,
                reader,
                run_id=run_id,
                started_unix_ns=started_unix_ns,
                elapsed_s=elapsed_s,
                interrupted=interrupted,
                turns_spooled=spooled,
                killed_by=killed_by,
                lost=lost_processes(reader, run_id, request.processes),
                store=str(own.store),
                dashboard_url=dashboard_url,
                calibration=cited,
            )
            if killed_by and not facts.calls_started:
                raise processes.ProcessFailedError(f"Locust was ended by {killed_by} before a turn was heard")
            summary = reader.summary(Filter(run_id=run_id))
            verdicts = judge(checked.objectives, reader.count(Filter(run_id=run_id)))
    return RunResult(facts, summary, verdicts, ending_for(run=facts, summary=summary, verdicts=verdicts))


def _check_ending(swarm: processes.Child, interrupted: bool) -> str | None:
    """The signal that ended Locust, if one did. Raises for what cannot be called a run."""
    code = swarm.ended()
    if code == ExitCode.USAGE:
        raise UsageError(swarm.last_words())
    if interrupted or code in (0, 1, ExitCode.GENERATOR_LIMITED, None):
        return None
    if code < 0:
        return signal.Signals(-code).name
    raise processes.ProcessFailedError(f"Locust ended with code {code}: {swarm.last_words()} (log: {swarm.log})")


def report(result: RunResult, console: Console, json_file: Path | None) -> ExitCode:
    """Print the summary, write the JSON object whole or not at all, and give the exit code."""
    console.print(final_view(run=result.facts, summary=result.summary, verdicts=result.verdicts, ending=result.ending))
    if json_file is not None:
        write_json(
            json_file,
            summary_object(
                run=result.facts, summary=result.summary, verdicts=result.verdicts, exit_code=result.ending.code
            ),
        )
    return result.ending.code


def _start_swarm(checked: CheckedRun, run_id: str, sidecar_url: str | None, cited: Citation) -> processes.Child:
    request, settings = checked.request, checked.request.settings
    spawn_rate = request.spawn_rate if request.spawn_rate is not None else max(LEAST_SPAWN_RATE, request.users / 5)
    arguments = ["-m", "locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--headless"]
    arguments += ["--host", settings.host, "--users", str(request.users), "--spawn-rate", f"{spawn_rate:g}"]
    arguments += ["--stop-timeout", str(STOP_TIMEOUT_S), "--loglevel", "WARNING", "--exit-code-on-error", "0"]
    if request.run_time_s is not None and not settings.scenario.phases:
        arguments += ["--run-time", f"{max(1, round(request.run_time_s))}s"]
    if request.processes > 1:
        port = str(processes.free_port(LOCUST_PORT))
        arguments += ["--processes", str(request.processes), "--expect-workers-max-wait", str(WORKERS_READY_S)]
        arguments += ["--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--master-port", port]
    if request.scenario is not None:
        arguments += ["--scenario", str(request.scenario)]
    told = replace(
        settings,
        corpus=str(checked.corpus.path),
        run_id=run_id,
        spool=str(request.out / "spool"),
        sidecar=sidecar_url,
        calibration=cited.sentence,
        calibrated_to_ms=None if cited.error_ms is None else f"{cited.error_ms:g}",
    )
    arguments += as_arguments(told)
    return processes.start("locust", arguments, request.out / "logs", says_ready=False, bystander=False)


def _follow(
    checked: CheckedRun,
    run_id: str,
    store: Path,
    swarm: processes.Child,
    console: Console,
    notes: list[str],
    watch: Callable[[], None],
) -> bool:
    """Show the run until it ends; whether somebody interrupted it."""
    processes.stand_by()
    began, said = time.monotonic(), 0.0
    with Interruption() as interruption, StoreReader(store) as reader, ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, refresh_per_second=4, transient=True))
        while not swarm.all_ended(STOP_TIMEOUT_S):
            watch()
            if interruption.wait(LOOK_EVERY_S):
                _stop(swarm, interruption, console)
                return True
            elapsed_s = time.monotonic() - began
            facts = _live_facts(checked, reader, run_id, elapsed_s, notes)
            if live is not None:
                live.update(live_view(facts))
            elif elapsed_s - said >= SAY_EVERY_S:
                said = elapsed_s
                total = facts.turns.total if facts.turns is not None else 0
                console.print(f"{elapsed_s:4.0f} s: {facts.users} callers at most, {total} turns so far")
    return False


def _live_facts(checked: CheckedRun, reader: StoreReader, run_id: str, elapsed_s: float, notes: list[str]) -> LiveFacts:
    request, settings = checked.request, checked.request.settings
    summary = in_flight = None
    try:
        summary = reader.summary(Filter(run_id=run_id))
        reported = [point.calls_in_flight for point in reader.timeline(Filter(run_id=run_id), buckets=30)]
        in_flight = next((calls for calls in reversed(reported) if calls is not None), None)
        if not summary.generator.processes:
            notes = ["the callers are preparing their speech", *notes]
        elif summary.ramp_turns:
            notes = [f"{summary.ramp_turns} turns began during a ramp and are not among these", *notes]
    except StoreError:
        notes = [*notes, "the store cannot be read at the moment"]
    return LiveFacts(
        target=public_target(request.settings.host),
        users=settings.max_calls if settings.has_open_arrivals else request.users,
        elapsed_s=elapsed_s,
        run_time_s=request.run_time_s,
        calls_in_flight=in_flight,
        turns=summary.turns if summary is not None else None,
        voice_to_voice=summary.metrics.get("voice_to_voice") if summary is not None else None,
        note=notes[0] if notes else None,
    )


def _stop(swarm: processes.Child, interruption: Interruption, console: Console) -> None:
    console.print("stopping: running turns end first (Ctrl-C again stops at once)")
    swarm.interrupt()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not swarm.all_ended(STOP_TIMEOUT_S) and time.monotonic() < deadline:
        if interruption.wait(0.2):
            swarm.kill()
            return


def _settle(reader: StoreReader, run_id: str) -> None:
    """Wait until the store holds what the generator says that it emitted, or has had time enough."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        loss = reader.summary(Filter(run_id=run_id)).loss
        if loss.emitted is not None and loss.received >= loss.emitted:
            return
        time.sleep(0.1)


def _facts(checked: CheckedRun, reader: StoreReader, *, run_id: str, **known: Any) -> RunFacts:
    request, settings, corpus = checked.request, checked.request.settings, checked.corpus
    calls = reader.calls(Filter(run_id=run_id))
    return RunFacts(
        run_id=run_id,
        target=public_target(settings.host),
        protocol=settings.protocol,
        corpus=CorpusFacts(
            name=corpus.name,
            kind=corpus.kind,
            utterances=checked.utterances,
            licences=tuple(sorted({utterance.licence for utterance in corpus.utterances})),
        ),
        users=request.users,
        arrivals=settings.arrivals_label,
        rate_per_s=settings.rate,
        max_calls=settings.max_calls if settings.has_open_arrivals else None,
        scenario=settings.scenario_name,
        seed=settings.seed,
        run_time_s=request.run_time_s,
        processes=request.processes,
        profile=_profile_facts(settings),
        cohort=settings.cohort,
        versions=_versions(),
        calls_started=calls.started,
        calls_connected=calls.connected,
        connect_failure=calls.connect_failure,
        **known,
    )


def _profile_facts(settings: SwarmSettings) -> ProfileFacts:
    """Where the calls have several profiles, each is named with its share; their turns say which was theirs."""
    profiles = settings.profiles
    if len(profiles) != 1:
        return ProfileFacts(length=settings.length, channel=settings.profile_label)
    profile = profiles[0][0]
    noise = None if profile.noise is None else profile.noise_label
    return ProfileFacts(noise=noise, snr_db=profile.snr_db, length=settings.length, channel=profile.channel_label)


def _render_ahead(settings: SwarmSettings) -> None:
    """Render what is not in the cache before there is a swarm that waits for it. Raises UsageError."""
    protocol = registry.make_caller(settings.protocol, CallerOptions())
    with progress_bar("rendering speech") as progress:
        try:
            render_ahead(settings, protocol, progress)
        except CorpusError as error:
            raise UsageError(str(error)) from None


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("voiceprobe", "locust", "gevent", "opentelemetry-sdk", "duckdb"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
