"""One worker process: the engine, the prepared speech, telemetry and its health report."""

import inspect
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import gevent

from loadtest.conversation.evidence import ValidityLimits
from loadtest.conversation.exchange import Exchange
from loadtest.conversation.plan import CallPlan, Limits, PlannedTurn
from loadtest.conversation.record import CallInfo, RecordOptions, build_turn
from loadtest.conversation.state import State
from loadtest.conversation.transcripts import word_errors
from loadtest.conversation.warmup import warm_up
from loadtest.engine.call import Call
from loadtest.engine.call_audio.keeper import CallAudioTap
from loadtest.engine.engine import Engine
from loadtest.engine.pacer import open_pacer
from loadtest.engine.transports.opening import can_be_paced
from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.protocols.address import public_target
from loadtest.protocols.base import CallerProtocol
from loadtest.scenario.arrivals import WHOLE, Share
from loadtest.scenario.declaration import NOT_ASKED, AskedLoad, declaration
from loadtest.scenario.phases import RunClock
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.preparation import PreparedCorpus, prepare
from loadtest.swarm.call_recordings import KeptCalls
from loadtest.swarm.cores import usable_cores
from loadtest.swarm.open_calls import OpenCalls
from loadtest.swarm.planner import CallPlanner
from loadtest.swarm.priority import GcControl, GreenletThrottle, ask_for_priority, leave_realtime_to_the_pacer
from telemetry.export import sdk
from telemetry.export.instrumentation import CallTrace, GeneratorGauges, StartGauges, announce_run
from telemetry.model.turn_spans import AttributeValue, turn_attributes
from telemetry.model.turns import Turn, with_plain_texts


class Recording:
    """Records the exchanges of a call.

    Nothing of `rest` waits, so that it can be the last thing that a greenlet does which is being ended, and what is
    done for the greenlets that are not there any more when a process ends.
    """

    def __init__(self, record: Callable[[Call, Exchange], None], end: Callable[[Call | None], None]) -> None:
        self._record, self._end = record, end
        self._call: Call | None = None
        self._in_hand: list[Exchange] = []

    def began(self, call: Call) -> None:
        """The call whose exchanges these are."""
        self._call = call

    def take(self, exchange: Exchange) -> None:
        """An exchange has ended; it is to be recorded, by `record` or with the rest."""
        self._in_hand.append(exchange)

    def record(self) -> None:
        """Record the pending exchanges that can receive no more events."""
        call = self._call
        if call is None:
            return
        is_over = call.conversation.state is State.OVER
        for exchange in [exchange for exchange in self._in_hand if is_over or not exchange.awaits_more]:
            self._in_hand = [other for other in self._in_hand if other is not exchange]
            self._record(call, exchange)

    def rest(self) -> None:
        """Record what is left, and end. Idempotent."""
        call = self._call
        if call is not None:
            while not call.exchanges.empty():
                exchange = call.exchanges.get_nowait()
                if exchange is not None:
                    self._in_hand.append(exchange)
            in_hand, self._in_hand = self._in_hand, []
            for exchange in in_hand:
                self._record(call, exchange)
        self._end(call)


HEALTH_EVERY_S = 1.0
SWITCH_INTERVAL_S = 0.0005
FLUSH_TIMEOUT_S = 10.0
FIRST_FLUSH_S = 1.0
# How long turns are recorded one after the other where that delays no frame.
BUSY_S = 0.002


@dataclass(frozen=True, slots=True)
class _Sinks:
    """The receivers of the turns of a call."""

    trace: CallTrace
    on_turn: Callable[[Turn], None]
    on_exchange: Callable[[Exchange], None]
    tap: CallAudioTap | None


class Worker:
    """One process of a swarm. Make it after Locust has patched the process, in the main greenlet."""

    def __init__(
        self,
        settings: SwarmSettings,
        *,
        share: Share = WHOLE,
        progress: Callable[[int, int], None] | None = None,
        clock: RunClock | None = None,
        load: AskedLoad = NOT_ASKED,
    ) -> None:
        """Raises CorpusError, UsageError and ConfigError for settings that cannot be used."""
        self.settings, self.share, self.clock, self._load = settings, share, clock or RunClock(), load
        self.run_id = settings.run_id or new_run_id()
        self._caller_options, self._target_url = settings.caller_options, settings.target_url
        protocol = self._protocol()
        self.prepared: PreparedCorpus = prepare(settings, protocol, progress)
        # Compiled before there are calls: it would delay them by seconds.
        paced = can_be_paced(protocol.capabilities, self._target_url)
        pacer, self.no_pacer_because = open_pacer(ask_for_priority) if paced else (None, "")
        self.engine = Engine(
            frame_ns=protocol.capabilities.frame_ms * 1_000_000,
            onset_preset=settings.onset,
            tls=settings.tls,
            mask=settings.mask,
            pacer=pacer,
        )
        self._redactor = settings.redactor
        self.priority = ask_for_priority() if pacer is None else leave_realtime_to_the_pacer()
        # A thread that encodes telemetry must not keep the interpreter for the usual 5 ms while a frame is due.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gevent.setswitchinterval(SWITCH_INTERVAL_S)  # nor may greenlets, one behind the other
        self._planner = CallPlanner(
            self.prepared.lines,
            behavior=settings.behavior,
            conversations=self.prepared.corpus.conversations,
            limits=_limits(settings),
            manual_turns=settings.manual_turns or protocol.capabilities.caller_ends_turns,
            seed=settings.seed,
            share=share,
            calls=settings.calls,
        )
        self._record = RecordOptions(
            ValidityLimits(), settings.keep_transcripts, word_errors, self.engine.clocks.to_unix_ns, self.clock.phase_of
        )
        self._telemetry = self._start_telemetry()
        self._gauges = GeneratorGauges(self._telemetry, self.run_id)
        self.open_calls = self._open_calls()
        if self.open_calls is not None:
            self._start_gauges = StartGauges(self._telemetry, self.run_id, self.open_calls.report)
        self._gc_control, self._throttle = GcControl(), GreenletThrottle(0.0 if pacer is None else BUSY_S)
        self._cpu_s, self._cpu_at_perf_ns = time.process_time(), self.engine.clocks.perf_ns()
        self._health = gevent.spawn(self._report_health)
        self._winding_down, self._recordings = False, set[Recording]()
        announce_run(self._telemetry, self.run_id, "start", self.declared())
        keeps = settings.keep_audio or settings.keep_text
        self._kept = KeptCalls(settings, self.prepared, self.engine, self.run_id) if keeps else None
        self._warm_up()
        self._gc_control.disable_full_collections()

    def _warm_up(self) -> None:
        """Run the first export, turn and `inspect.stack()` now: each loads what it needs, for tens of milliseconds.

        Locust inspects the stack when it stops a run, which reads every module there is.
        """
        inspect.stack()
        self._gauges.report(frames_sent=0, calls_in_flight=0)
        self._telemetry.flush(FIRST_FLUSH_S)
        clip, background = self.prepared.clips[0], self.prepared.background
        plan = CallPlan("warmup", (PlannedTurn(clip, 0, None),), background, Limits())
        exchange = warm_up(plan, self.engine.clocks.perf_ns(), self.settings.onset)
        protocol = self._protocol()
        call = self.engine.new_call(plan, protocol, protocol.upgrade(self._target_url, None))
        turn_attributes(build_turn(exchange, self._info(call), self._record))

    def _start_telemetry(self) -> sdk.Telemetry:
        folder = self.settings.spool
        options = sdk.SdkOptions(self.settings.sidecar, "voiceprobe-caller", spool_dir=Path(folder) if folder else None)
        try:
            return sdk.start(options)
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
        """Return what this process declares of the run."""
        corpus, settings = self.prepared.corpus, self.settings
        declared: dict[str, str | int | float | bool | None] = {
            **declaration(settings, corpus, len(self.prepared.clips), self._load),
            "recorded_ends": self.prepared.recorded_ends if corpus.edges == "exact" else None,
            "pacer": self.engine.pacer,
            "realtime": None if self.priority is None else self.priority.realtime,
            "niceness": None if self.priority is None else self.priority.niceness,
            "cores": usable_cores(),
            "worker": self.share.late or f"{self.share.index + 1} of {self.share.of}",
        }
        return {name: value for name, value in declared.items() if value is not None}

    def _protocol(self) -> CallerProtocol:
        return registry.make_caller(self.settings.protocol, self._caller_options)

    def begin_open_calls(self, on_turn: Callable[[Turn], None]) -> None:
        """Begin the calls that arrive by a schedule, from the start of the run's clock."""
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
        retry_wait_ns: int | None = None,
        on_exchange: Callable[[Exchange], None] = lambda exchange: None,
    ) -> int:
        """Make one call, the next one unless a plan is given, to its end; return its caller's pause after it, in ns.

        `on_turn` gets each turn when it has been handed to telemetry; a caller who is `leaving` begins no further
        one. `on_exchange` gets what each turn was made of, before it. `began` is called at the start. `retry_wait_ns`
        is how long the caller had waited because it was asked to.
        """
        plan = plan or replace(self.plan(), retry_wait_ns=retry_wait_ns)
        self._throttle.wait()  # many may begin at the same moment, too
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
        tap = None if self._kept is None else self._kept.tap(plan, trace.trace_id)

        def end(call: Call | None) -> None:
            trace.end(clocks.perf_ns(), self._call_attributes(call))
            if tap is not None:
                tap.close(clocks.perf_ns())

        def connecting(call: Call) -> None:
            recording.began(call)
            if self._kept is not None and tap is not None:
                self._kept.began(call, tap)

        sinks = _Sinks(trace, on_turn, on_exchange, tap)
        recording = Recording(lambda call, exchange: self._finish(call, exchange, sinks), end)
        self._recordings.add(recording)
        try:
            request = protocol.upgrade(self._target_url, trace.traceparent)
            for call, exchange in self.engine.call(plan, protocol, request, connecting):
                recording.take(exchange)
                self._throttle.through(recording.record)
                if leaving():
                    call.wind_down()
        finally:
            recording.rest()
            self._recordings.discard(recording)
        return plan.pause_after_ns

    def _finish(self, call: Call, exchange: Exchange, sinks: "_Sinks") -> None:
        """Account for an exchange that has ended."""
        turn = with_plain_texts(build_turn(exchange, self._info(call), self._record))
        emitted = sinks.trace.emit(self._redactor.turn(turn))
        if self._kept is not None and sinks.tap is not None:
            self._kept.recorded(sinks.tap, exchange, emitted)
        sinks.on_exchange(exchange)
        sinks.on_turn(emitted)

    def _call_attributes(self, call: Call | None) -> dict[str, AttributeValue]:
        """Return what the span of a call has at its end: the headers by which the endpoint says who answered."""
        if call is None or not call.endpoint_headers:
            return {}
        values = tuple(map(self._redactor.text, call.endpoint_headers.values()))
        return {"endpoint_headers": tuple(call.endpoint_headers), "endpoint_header_values": values}

    def _info(self, call: Call) -> CallInfo:
        settings, intended = self.settings, call.plan.intended_start_perf_ns
        late_ns = None if intended is None else call.began_perf_ns - intended
        profile = self.prepared.lines[call.plan.line].profile
        return CallInfo(
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
            connect_earlier_ns=call.connect_earlier_ns + (late_ns or 0),
            prior_request_ns=call.prior_request_ns,
            start_late_ns=late_ns,
            receive_stamp=call.receive_stamp,
            pacer=self.engine.pacer_of(call),
            not_observable=call.protocol.capabilities.not_observable,
            sends_speech=call.protocol.capabilities.sends_speech,
            retry_wait_ns=call.plan.retry_wait_ns,
            endpoint_headers=call.endpoint_headers,
        )

    def wind_down(self, stop_timeout_s: float = 0.0) -> None:
        """Begin no new turns and wait for running ones, so that stopping does not cut the slow ones off. What is still
        under way after the stop time-out is cut, and recorded so."""
        self.engine.cut_by = f"the stop time-out of {stop_timeout_s:g} s"
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
        """Record what is still under way, say that the run has ended, and deliver or spool all telemetry."""
        self.engine.break_off_all()
        for recording in tuple(self._recordings):
            recording.rest()
        self._health.kill()
        self._gc_control.close()
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
        self._say_what_was_lost()
        if self._kept is not None and (missing := self._kept.close()):
            sys.stderr.write(f"voiceprobe: {missing}\n")
        self.engine.close()

    def _say_what_was_lost(self) -> None:
        stats = self._telemetry.export_stats()
        if self.settings.sidecar is None or not stats.dropped_spans:
            return
        sys.stderr.write(
            f"voiceprobe: {stats.dropped_spans} spans are lost ({stats.drop_reason}): the sidecar at "
            f"{public_target(self.settings.sidecar)} did not take them ({stats.failure or 'not in time'})"
            + ("\n" if self.settings.spool else ", and there was no --spool to keep them\n")
        )

    def _report_health(self) -> None:
        while True:
            gevent.sleep(HEALTH_EVERY_S)
            self._report_once()

    def _report_once(self) -> None:
        cpu_s, now = time.process_time(), self.engine.clocks.perf_ns()
        elapsed_s = (now - self._cpu_at_perf_ns) / 1e9
        health = self.engine.health
        self._gauges.report(
            cpu_ratio=(cpu_s - self._cpu_s) / elapsed_s if elapsed_s > 0 else None,
            loop_lag_worst_ns=health.take_lag_worst_ns(),
            frame_lateness_worst_ns=health.take_lateness_worst_ns(),
            calls_in_flight=self.engine.calls_in_flight,
            frames_sent=health.frames_sent,
            gc_pause_worst_ns=self._gc_control.take_worst_ns(),
            clock_offset_drift_ns=self.engine.clocks.drift_ns,
            unsent_worst_bytes=health.take_unsent_worst_bytes(),
            frames_held_up=health.frames_held_up,
        )
        self._cpu_s, self._cpu_at_perf_ns = cpu_s, now
        if not self.engine.calls_in_flight:
            self._gc_control.collect()


def new_run_id() -> str:
    """A name for a run: sorts by time, and is unique without anybody keeping count."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"


def _limits(settings: SwarmSettings) -> Limits:
    return Limits(
        reply_ns=settings.reply_timeout.ns,
        reply_silence_ns=settings.reply_silence.ns,
        longest_reply_ns=settings.longest_reply.ns,
    )
