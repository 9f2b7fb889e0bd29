"""What one worker process has: the engine, the prepared speech, telemetry and its health report."""

import gc
import inspect
import ssl
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent

from loadtest.caller.call import Call
from loadtest.caller.engine import Engine
from loadtest.caller.evidence import ValidityLimits
from loadtest.caller.plan import SECOND_NS, Limits
from loadtest.caller.record import CallFacts, RecordOptions, build_turn
from loadtest.caller.words import word_errors
from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions, CallerProtocol
from loadtest.swarm.planner import Planner
from loadtest.swarm.preparation import PreparedCorpus, prepare
from loadtest.swarm.priority import ask_for_priority
from loadtest.swarm.settings import SwarmSettings
from telemetry import sdk
from telemetry.instrument import CallTrace, GeneratorGauges, GeneratorHealth, announce_run
from telemetry.turns import Turn

HEALTH_EVERY_S = 1.0
SWITCH_INTERVAL_S = 0.0005
FLUSH_TIMEOUT_S = 10.0


@dataclass(slots=True)
class GcPauses:
    """The worst pause of the garbage collector since the last look."""

    began_perf_ns: int = 0
    worst_ns: int = 0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """The hook for gc.callbacks."""
        del info
        now = time.perf_counter_ns()
        if phase == "start":
            self.began_perf_ns = now
        elif self.began_perf_ns:
            self.worst_ns = max(self.worst_ns, now - self.began_perf_ns)

    def take(self) -> int:
        """The worst pause in ns; starts anew."""
        worst, self.worst_ns = self.worst_ns, 0
        return worst


class Worker:
    """One process of a swarm. Make it after Locust has patched the process, in the main greenlet."""

    def __init__(
        self, settings: SwarmSettings, *, process: str = "", progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Raises CorpusError, UsageError and ConfigError for settings that cannot be used."""
        self.settings = settings
        self.run_id = settings.run_id or new_run_id()
        protocol = self._protocol()
        self.prepared: PreparedCorpus = prepare(settings, protocol, progress)
        self.engine = Engine(
            frame_ns=protocol.capabilities.frame_ms * 1_000_000,
            onset_preset=settings.onset,
            tls_context=tls_context(settings.ca_file),
        )
        self.niceness = ask_for_priority()
        # A thread that encodes telemetry must not keep the interpreter for the usual 5 ms while a frame is due.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._planner = Planner(
            self.prepared.clips,
            self.prepared.background,
            turns_per_call=settings.turns,
            think_s=settings.think,
            patience_s=settings.patience,
            limits=Limits(reply_ns=round(settings.reply_timeout * SECOND_NS)),
            manual_turns=settings.manual_turns,
            seed=settings.seed,
            process=process,
        )
        self._record = RecordOptions(
            ValidityLimits(), settings.keep_transcripts, word_errors, self.engine.clocks.to_unix_ns
        )
        self._telemetry = sdk.start(
            sdk.SdkOptions(
                endpoint=settings.sidecar,
                service_name="voiceprobe-caller",
                spool_dir=Path(settings.spool) if settings.spool else None,
            )
        )
        self._gauges = GeneratorGauges(self._telemetry, self.run_id)
        self._gc = GcPauses()
        gc.callbacks.append(self._gc)
        # Locust looks up who called it when it stops a run. The first such look reads every loaded module, for some
        # 50 ms in the middle of running turns; later ones find it done.
        inspect.stack()
        # What is loaded now stays: the collector need not walk it again and again while audio is due.
        gc.collect()
        gc.freeze()
        self._cpu_s, self._cpu_at_perf_ns = time.process_time(), self.engine.clocks.perf_ns()
        self._health = gevent.spawn(self._report_health)
        self._winding_down = False
        announce_run(self._telemetry, self.run_id, "start", self.declared())

    def declared(self) -> dict[str, str | int | float | bool]:
        """What this process says of the run."""
        corpus, settings = self.prepared.corpus, self.settings
        facts: dict[str, str | int | float | bool | None] = {
            "target": public_target(settings.host),
            "protocol": settings.protocol,
            "corpus": corpus.name,
            "corpus_kind": corpus.kind,
            "utterances": len(self.prepared.clips),
            "profile": settings.profile.label,
            "length": settings.length,
            "turns_per_call": settings.turns,
            "patience_s": settings.patience,
            "cohort": settings.cohort,
            "scenario": settings.scenario,
            "seed": settings.seed,
            "onset_preset": settings.onset,
            "pacer": self.engine.pacer,
            "niceness": self.niceness,
        }
        return {name: value for name, value in facts.items() if value is not None}

    def _protocol(self) -> CallerProtocol:
        settings = self.settings
        return registry.make_caller(
            settings.protocol,
            CallerOptions(
                turn_control="manual" if settings.manual_turns else "server",
                model=settings.model,
                transcription_model=settings.transcription_model,
                silence_duration_ms=settings.endpointing_ms,
                token=settings.token,
            ),
        )

    def call(self, on_turn: Callable[[Turn], None]) -> None:
        """Make one call to its end. `on_turn` is told of each turn when it has been handed to telemetry."""
        clocks = self.engine.clocks
        call_id = uuid.uuid4().hex
        plan = self._planner.plan(call_id)
        protocol = self._protocol()
        began = clocks.perf_ns()
        trace = CallTrace(
            self._telemetry,
            run_id=self.run_id,
            call_id=call_id,
            source="client",
            started_unix_ns=clocks.to_unix_ns(began),
            started_perf_ns=began,
            attributes={"protocol": self.settings.protocol, "target": public_target(self.settings.host)},
        )
        try:
            request = protocol.upgrade(self.settings.host, trace.traceparent)
            for call, exchange in self.engine.call(plan, protocol, request):
                on_turn(trace.emit(build_turn(exchange, self._facts(call), self._record)))
        finally:
            trace.end(clocks.perf_ns(), {})

    def _facts(self, call: Call) -> CallFacts:
        settings, connection = self.settings, call.connection
        return CallFacts(
            run_id=self.run_id,
            call_id=call.plan.call_id,
            scenario=settings.scenario,
            noise_profile=settings.profile.noise or "clean",
            channel_profile="clean",
            protocol=settings.protocol,
            target=public_target(settings.host),
            region=settings.region,
            cohort=settings.cohort,
            model=settings.model,
            onset_preset=settings.onset,
            connect_ns=call.connect_ns,
            start_late_ns=None,
            receive_stamp=connection.stamp_kind if connection is not None else "user",
            pacer=self.engine.pacer,
            not_observable=call.protocol.capabilities.not_observable,
        )

    def wind_down(self) -> None:
        """Let running turns end and begin no new ones, so that stopping does not cut the slow ones off."""
        self._winding_down = True
        self.engine.wind_down()

    @property
    def winding_down(self) -> bool:
        """Whether no new call should begin."""
        return self._winding_down

    def close(self) -> None:
        """Say that the run has ended, and deliver or spool all telemetry."""
        self._health.kill()
        gc.callbacks.remove(self._gc)
        self._report_once()
        health = self.engine.health
        announce_run(
            self._telemetry,
            self.run_id,
            "end",
            {"calls_connected": health.calls_connected, "calls_failed_to_connect": health.calls_failed_to_connect},
        )
        self._telemetry.flush(FLUSH_TIMEOUT_S)
        self._telemetry.shutdown(FLUSH_TIMEOUT_S)
        self.engine.close()

    def _report_health(self) -> None:
        while True:
            gevent.sleep(HEALTH_EVERY_S)
            self._report_once()

    def _report_once(self) -> None:
        cpu_s, now = time.process_time(), self.engine.clocks.perf_ns()
        elapsed_s = (now - self._cpu_at_perf_ns) / 1e9
        health = self.engine.health
        self._gauges.report(
            GeneratorHealth(
                cpu_ratio=(cpu_s - self._cpu_s) / elapsed_s if elapsed_s > 0 else None,
                loop_lag_worst_ns=health.take_lag_worst_ns(),
                frame_lateness_worst_ns=health.take_lateness_worst_ns(),
                calls_in_flight=self.engine.calls_in_flight,
                frames_sent=health.frames_sent,
                gc_pause_worst_ns=self._gc.take(),
                clock_offset_drift_ns=self.engine.clocks.drift_ns,
            )
        )
        self._cpu_s, self._cpu_at_perf_ns = cpu_s, now


def new_run_id() -> str:
    """A name for a run: sorts by time, and is unique without anybody keeping count."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"


def public_target(url: str) -> str:
    """The target without credentials and query, as it is stored and shown."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Verification is on; `ca_file` adds an own authority. Raises UsageError for a file that is none."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--ca-file {ca_file}: {error}; give a PEM file with the authority's certificate") from None
