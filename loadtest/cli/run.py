"""`voiceprobe run`: a swarm against an endpoint, seen live, summed up from the store.

The run's own sidecar is started where none is named. Locust is a process of its own. The summary is a question to the
store, as the dashboard's figures are.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.live import Live

from loadtest.caller.engine import Engine
from loadtest.caller.plan import Limits
from loadtest.cli import processes
from loadtest.cli.interruption import Interruption
from loadtest.cli.request import CheckedRun
from loadtest.cli.sidecars import Sidecar, deliver_all, destination
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.reports.ending import Ending, ending_for
from loadtest.reports.facts import CorpusFacts, ProfileFacts, RunFacts
from loadtest.reports.progress import LiveFacts, live_view
from loadtest.reports.summary import summary_object
from loadtest.reports.terminal import final_view
from loadtest.swarm.worker import new_run_id, public_target, tls_context
from telemetry.errors import StoreError
from telemetry.slo import Verdict, judge
from telemetry.store.answers import Filter, Summary
from telemetry.store.reader import StoreReader

STOP_TIMEOUT_S: Final = 30
LOOK_EVERY_S: Final = 2.0
SAY_EVERY_S: Final = 10.0
SETTLE_S: Final = 10.0


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
    protocol = registry.make_caller(settings.protocol, CallerOptions(token=settings.token, model=settings.model))
    engine = Engine(
        frame_ns=protocol.capabilities.frame_ms * 1_000_000,
        onset_preset=settings.onset,
        tls_context=tls_context(settings.ca_file),
    )
    try:
        engine.probe(protocol, protocol.upgrade(settings.host, None), Limits())
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
    run_id = request.settings.run_id or new_run_id()
    started_unix_ns = time.time_ns()
    with ExitStack() as stack:
        own, notes = destination(checked, sidecar, stack)
        swarm = _start_swarm(checked, run_id, request.settings.sidecar if notes else own.url)
        stack.enter_context(processes.ending(swarm))
        began = time.monotonic()
        interrupted = _follow(checked, run_id, own.store, swarm, console, notes, watch)
        elapsed_s = time.monotonic() - began
        _check_ending(swarm, interrupted)
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
                store=str(own.store),
                dashboard_url=dashboard_url,
            )
            summary = reader.summary(Filter(run_id=run_id))
            verdicts = judge(checked.objectives, reader.count(Filter(run_id=run_id)))
    return RunResult(facts, summary, verdicts, ending_for(run=facts, summary=summary, verdicts=verdicts))


def _check_ending(swarm: processes.Child, interrupted: bool) -> None:
    code = swarm.ended()
    if code == ExitCode.USAGE:
        raise UsageError(swarm.last_words())
    if code not in (0, 1, None) and not interrupted:
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


def write_json(file: Path, value: dict[str, Any]) -> None:
    """Write an object to a file, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    part.replace(file)


def _start_swarm(checked: CheckedRun, run_id: str, sidecar_url: str | None) -> processes.Child:
    request, settings = checked.request, checked.request.settings
    spawn_rate = request.spawn_rate if request.spawn_rate is not None else max(1.0, request.users / 5)
    arguments = ["-m", "locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--headless"]
    arguments += ["--host", settings.host, "--users", str(request.users), "--spawn-rate", f"{spawn_rate:g}"]
    arguments += ["--stop-timeout", str(STOP_TIMEOUT_S), "--loglevel", "WARNING", "--exit-code-on-error", "0"]
    arguments += ["--run-id", run_id, "--spool", str(request.out / "spool")]
    if request.run_time_s is not None:
        arguments += ["--run-time", f"{max(1, round(request.run_time_s))}s"]
    if request.processes > 1:
        arguments += ["--processes", str(request.processes)]
    if sidecar_url is not None:
        arguments += ["--sidecar", sidecar_url]
    return processes.start(
        "locust", [*arguments, *_flags(checked)], request.out / "logs", says_ready=False, bystander=False
    )


def _flags(checked: CheckedRun) -> list[str]:
    settings = checked.request.settings
    values: dict[str, object] = {
        "--protocol": settings.protocol,
        "--corpus": str(checked.corpus.path),
        "--length": settings.length,
        "--noise": settings.noise,
        "--snr": settings.snr,
        "--clips": settings.clips,
        "--turns": settings.turns,
        "--think": settings.think,
        "--patience": settings.patience,
        "--reply-timeout": settings.reply_timeout,
        "--endpointing-ms": settings.endpointing_ms,
        "--model": settings.model,
        "--transcription-model": settings.transcription_model,
        "--cohort": settings.cohort,
        "--scenario": settings.scenario,
        "--region": settings.region,
        "--seed": settings.seed,
        "--onset": settings.onset,
        "--ca-file": settings.ca_file,
    }
    flags = [part for flag, value in values.items() if value is not None for part in (flag, str(value))]
    flags += ["--manual-turns"] if settings.manual_turns else []
    return flags + (["--keep-transcripts"] if settings.keep_transcripts else [])


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
    request = checked.request
    processes.stand_by()
    began, said = time.monotonic(), 0.0
    with Interruption() as interruption, StoreReader(store) as reader, ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, refresh_per_second=4, transient=True))
        while swarm.ended() is None:
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
                console.print(f"{elapsed_s:4.0f} s: {request.users} callers, {total} turns so far")
    return False


def _live_facts(checked: CheckedRun, reader: StoreReader, run_id: str, elapsed_s: float, notes: list[str]) -> LiveFacts:
    request = checked.request
    summary = in_flight = None
    try:
        summary = reader.summary(Filter(run_id=run_id))
        reported = [point.calls_in_flight for point in reader.timeline(Filter(run_id=run_id), buckets=30)]
        in_flight = next((calls for calls in reversed(reported) if calls is not None), None)
        if not summary.generator.processes:
            notes = ["the callers are preparing their speech", *notes]
    except StoreError:
        notes = [*notes, "the store cannot be read at the moment"]
    return LiveFacts(
        target=public_target(request.settings.host),
        users=request.users,
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
    while swarm.ended() is None and time.monotonic() < deadline:
        if interruption.wait(0.2):
            swarm.process.send_signal(signal.SIGKILL)
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
        seed=settings.seed,
        run_time_s=request.run_time_s,
        profile=ProfileFacts(noise=settings.noise, snr_db=settings.snr, length=settings.length, channel="clean"),
        cohort=settings.cohort,
        versions=_versions(),
        calls_started=calls.started,
        calls_connected=calls.connected,
        connect_failure=calls.connect_failure,
        **known,
    )


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("voiceprobe", "locust", "gevent", "opentelemetry-sdk", "duckdb"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
