"""What one worker process has: the engine, the prepared speech, telemetry and its health report."""

import inspect
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import gevent

from loadtest.caller.address import public_target
from loadtest.caller.call import Call
from loadtest.caller.engine import Engine
from loadtest.caller.evidence import ValidityLimits
from loadtest.caller.exchange import Exchange
from loadtest.caller.plan import SECOND_NS, CallPlan, Limits, PlannedTurn
from loadtest.caller.record import CallFacts, RecordOptions, build_turn
from loadtest.caller.rehearsal import rehearse
from loadtest.caller.words import word_errors
from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions, CallerProtocol
from loadtest.protocols.websocket import WebSocketClient
from loadtest.swarm.behaviour import CallerBehaviour
from loadtest.swarm.garbage import Garbage
from loadtest.swarm.open_calls import OpenCalls
from loadtest.swarm.planner import Planner
from loadtest.swarm.preparation import PreparedCorpus, prepare
from loadtest.swarm.priority import ask_for_priority
from loadtest.swarm.run_clock import RunClock
from loadtest.swarm.settings import SwarmSettings
from loadtest.swarm.shares import WHOLE, Share
from loadtest.swarm.turnstile import Turnstile
from telemetry import sdk
from telemetry.instrument import CallTrace, GeneratorGauges, GeneratorHealth, StartGauges, announce_run
from telemetry.journal import TurnJournal
from telemetry.turn_spans import turn_attributes
from telemetry.turns import Turn

HEALTH_EVERY_S = 1.0
SWITCH_INTERVAL_S = 0.0005
FLUSH_TIMEOUT_S = 10.0
FIRST_FLUSH_S = 1.0


class Worker:
    """One process of a swarm. Make it after Locust has patched the process, in the main greenlet."""

    def __init__(
        self,
        settings: SwarmSettings,
        *,
        share: Share = WHOLE,
        progress: Callable[[int, int], None] | None = None,
        clock: RunClock | None = None,
    ) -> None:
        """Raises CorpusError, UsageError and ConfigError for settings that cannot be used."""
        self.settings, self.share, self.clock = settings, share, clock or RunClock()
        self.run_id = settings.run_id or new_run_id()
        protocol = self._protocol()
        self.prepared: PreparedCorpus = prepare(settings, protocol, progress)
        self.engine = Engine(
            frame_ns=protocol.capabilities.frame_ms * 1_000_000,
            onset_preset=settings.onset,
            tls=settings.tls,
        )
        self._redactor = settings.redactor
        self.priority = ask_for_priority()
        # A thread that encodes telemetry must not keep the interpreter for the usual 5 ms while a frame is due.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gevent.setswitchinterval(SWITCH_INTERVAL_S)  # nor may greenlets, one behind the other
        self._planner = Planner(
            self.prepared.lines,
            behaviour=settings.behaviour,
            conversations=self.prepared.corpus.conversations,
            limits=Limits(reply_ns=round(settings.reply_timeout * SECOND_NS)),
            manual_turns=settings.manual_turns,
            seed=settings.seed,
            share=share,
            calls=settings.calls,
        )
        self._record = RecordOptions(
            ValidityLimits(), settings.keep_transcripts, word_errors, self.engine.clocks.to_unix_ns, self.clock.phase_of
        )
        self._telemetry = sdk.start(
            sdk.SdkOptions(
                endpoint=settings.sidecar,
                service_name="voiceprobe-caller",
                spool_dir=Path(settings.spool) if settings.spool else None,
            )
        )
        self._journal = self._open_journal()
        self._gauges = GeneratorGauges(self._telemetry, self.run_id)
        self.open_calls = self._open_calls()
        if self.open_calls is not None:
            self._start_gauges = StartGauges(self._telemetry, self.run_id, self.open_calls.report)
        self._garbage, self._turnstile = Garbage(), Turnstile()
        self._cpu_s, self._cpu_at_perf_ns = time.process_time(), self.engine.clocks.perf_ns()
        self._health = gevent.spawn(self._report_health)
        self._winding_down = False
        announce_run(self._telemetry, self.run_id, "start", self.declared())
        self._warm_up()
        self._garbage.tame()

    def _warm_up(self) -> None:
        """What is done for the first time loads what it needs, for tens of milliseconds: better now than while callers
        speak. That is a delivery of telemetry, a turn, and the look that Locust takes at who called it when it stops a
        run, which reads every module there is."""
        inspect.stack()
        self._gauges.report(GeneratorHealth(frames_sent=0, calls_in_flight=0))
        self._telemetry.flush(FIRST_FLUSH_S)
        clip, background = self.prepared.clips[0], self.prepared.background
        plan = CallPlan("rehearsal", (PlannedTurn(clip, 0, None),), background, Limits())
        exchange = rehearse(plan, self.engine.clocks.perf_ns(), self.settings.onset)
        request = self._protocol().upgrade(self.settings.host, None)
        call = Call(self.engine, plan, self._protocol(), WebSocketClient(request), self.settings.onset)
        turn_attributes(build_turn(exchange, self._facts(call), self._record))

    def _open_journal(self) -> TurnJournal | None:
        folder = self.settings.spool
        if not folder:
            return None
        try:
            return TurnJournal(Path(folder), self._telemetry.identity.process_id)
        except OSError as error:
            raise UsageError(f"--spool {folder} cannot be written: {error.strerror}; give another folder") from None

    def _open_calls(self) -> OpenCalls | None:
        settings = self.settings
        if not settings.has_open_arrivals:
            return None
        return OpenCalls(
            self.clock,
            settings.phases,
            seed=settings.seed,
            share=self.share,
            calls=settings.calls,
            max_calls=settings.max_calls,
            perf_ns=self.engine.clocks.perf_ns,
        )

    def declared(self) -> dict[str, str | int | float | bool]:
        """What this process says of the run."""
        corpus, settings = self.prepared.corpus, self.settings
        facts: dict[str, str | int | float | bool | None] = {
            "target": public_target(settings.host),
            "protocol": settings.protocol,
            "corpus": corpus.name,
            "corpus_kind": corpus.kind,
            "utterances": len(self.prepared.clips),
            "profile": settings.profile_label,
            "length": settings.length,
            "turns_per_call": settings.turns,
            **_declared_behaviour(settings.behaviour),
            "cohort": settings.cohort,
            "scenario": settings.scenario_name,
            "seed": settings.seed,
            "onset_preset": settings.onset,
            "pacer": self.engine.pacer,
            "realtime": None if self.priority is None else self.priority.realtime,
            "niceness": None if self.priority is None else self.priority.niceness,
            "worker": self.share.late or f"{self.share.index + 1} of {self.share.of}",
            "calls": settings.calls,
            "calibration": settings.calibration,
            "calibrated_to_ms": settings.calibrated_to_ms,
            "arrivals": settings.arrivals_label,
            "max_calls": settings.max_calls if self.open_calls is not None else None,
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
                headers=settings.headers,
            ),
        )

    def begin_open_calls(self, on_turn: Callable[[Turn], None]) -> None:
        """Where calls arrive by a schedule: begin them by it from the start of the run's clock."""
        if self.open_calls is not None:
            self.open_calls.begin(self.plan, lambda plan, began: self.call(on_turn, plan=plan, began=began))

    def plan(self, intended_start_perf_ns: int | None = None) -> CallPlan:
        """The next call of this process."""
        return replace(self._planner.plan(uuid.uuid4().hex), intended_start_perf_ns=intended_start_perf_ns)

    def call(
        self,
        on_turn: Callable[[Turn], None],
        leaving: Callable[[], bool] = lambda: False,
        *,
        plan: CallPlan | None = None,
        began: Callable[[], None] = lambda: None,
    ) -> None:
        """Make one call, the next one unless a plan is given, to its end. `on_turn` is told of each turn when it has
        been handed to telemetry; a caller who is `leaving` begins no further one. `began` hears of the start."""
        plan = plan or self.plan()
        self._turnstile.wait()  # many may begin at the same moment, too
        began()
        clocks, call_id = self.engine.clocks, plan.call_id
        protocol = self._protocol()
        started_perf_ns = clocks.perf_ns()
        trace = CallTrace(
            self._telemetry,
            run_id=self.run_id,
            call_id=call_id,
            source="client",
            started_unix_ns=clocks.to_unix_ns(started_perf_ns),
            started_perf_ns=started_perf_ns,
            attributes={"protocol": self.settings.protocol, "target": public_target(self.settings.host)},
        )
        try:
            request = protocol.upgrade(self.settings.host, trace.traceparent)
            for call, exchange in self.engine.call(plan, protocol, request):
                self._turnstile.through(partial(self._finish, call, exchange, trace, on_turn))
                if leaving():
                    call.wind_down()
        finally:
            trace.end(clocks.perf_ns(), {})

    def _finish(self, call: Call, exchange: Exchange, trace: CallTrace, on_turn: Callable[[Turn], None]) -> None:
        """Account for an exchange that has ended."""
        turn = build_turn(exchange, self._facts(call), self._record)
        emitted = trace.emit(self._redactor.turn(turn))
        if self._journal is not None:
            self._journal.note(emitted)
        on_turn(emitted)

    def _facts(self, call: Call) -> CallFacts:
        settings, connection, intended = self.settings, call.connection, call.plan.intended_start_perf_ns
        late_ns = None if intended is None else call.connect_began_perf_ns - intended
        # One caller has one line, and each line its own background.
        lines = self.prepared.lines
        profile = next((line for line in lines if line.background is call.plan.background), lines[0]).profile
        return CallFacts(
            run_id=self.run_id,
            call_id=call.plan.call_id,
            scenario=settings.scenario_name,
            noise_profile=profile.noise_label,
            channel_profile=profile.channel_label,
            protocol=settings.protocol,
            target=public_target(settings.host),
            region=settings.region,
            cohort=settings.cohort,
            model=settings.model,
            onset_preset=settings.onset,
            # A caller who had to wait for us waited, too: no time is left out that the schedule did not.
            connect_ns=None if call.connect_ns is None else call.connect_ns + (late_ns or 0),
            start_late_ns=late_ns,
            receive_stamp=connection.stamp_kind if connection is not None else "user",
            pacer=self.engine.pacer,
            not_observable=call.protocol.capabilities.not_observable,
        )

    def wind_down(self) -> None:
        """Let running turns end and begin no new ones, so that stopping does not cut the slow ones off."""
        self._winding_down = True
        if self.open_calls is not None:
            self.open_calls.stop()
        self.engine.wind_down()

    @property
    def all_planned(self) -> bool:
        """Whether every call that was asked of this process has begun."""
        return self._planner.exhausted

    @property
    def all_made(self) -> bool:
        """Whether every call that was asked of this process has begun and ended."""
        waiting = 0 if self.open_calls is None else self.open_calls.under_way
        return self.all_planned and not waiting and not self.engine.calls_in_flight

    @property
    def winding_down(self) -> bool:
        """Whether no new call should begin."""
        return self._winding_down

    def close(self) -> None:
        """Say that the run has ended, and deliver or spool all telemetry."""
        self._health.kill()
        self._garbage.close()
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
        if self._journal is not None:
            self._journal.close()
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
                gc_pause_worst_ns=self._garbage.take_worst_ns(),
                clock_offset_drift_ns=self.engine.clocks.drift_ns,
                unsent_worst_bytes=health.take_unsent_worst_bytes(),
                frames_held_up=health.frames_held_up,
            )
        )
        self._cpu_s, self._cpu_at_perf_ns = cpu_s, now
        if not self.engine.calls_in_flight:
            self._garbage.collect()
        if self._journal is not None:
            stats = self._telemetry.export_stats()
            done = stats.exported_spans + stats.spooled_spans + stats.dropped_spans + stats.rejected_spans
            self._journal.settle(done, stats.waiting_spans)


def _declared_behaviour(behaviour: CallerBehaviour) -> dict[str, str | float | bool | None]:
    return {
        "think": str(behaviour.think),
        "patience": None if behaviour.patience is None else str(behaviour.patience),
        "barge_in_share": sum(each.share for each in behaviour.barge_ins) or None,
        "talk_over_share": behaviour.talk_over or None,
        "silence_share": behaviour.silence or None,
        "conversations": behaviour.conversations or None,
    }


def new_run_id() -> str:
    """A name for a run: sorts by time, and is unique without anybody keeping count."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"
