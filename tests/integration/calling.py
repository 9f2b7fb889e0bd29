"""Real callers against a real endpoint process, without Locust: what the engine's integration tests share."""

import contextlib
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import gevent

from loadtest.caller.engine import Engine
from loadtest.caller.evidence import ValidityLimits
from loadtest.caller.plan import Limits
from loadtest.caller.record import CallFacts, RecordOptions, build_turn
from loadtest.caller.words import word_errors
from loadtest.cli import processes
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.swarm.planner import Planner
from loadtest.swarm.preparation import PreparedCorpus, prepare
from loadtest.swarm.settings import SwarmSettings
from loadtest.swarm.worker import tls_context
from telemetry.turns import Turn

SECOND_NS = 1_000_000_000
CORPUS = "voiceprobe-en"
# A busy machine may make a turn invalid; what a test asks is what happened, so validity is judged in its own tests.
LENIENT = ValidityLimits(frame_lateness_ns=10 * SECOND_NS, drift_ns=10 * SECOND_NS, receive_lag_ns=10 * SECOND_NS)


@contextlib.contextmanager
def assistant(logs: Path, *flags: str) -> Generator[str]:
    """A reference assistant of its own process, with quick scripted engines; gives its URL."""
    arguments = ["-m", "loadtest.assistant", "--port", "0", "--corpus", CORPUS, "--tts-pace", "0"]
    child = processes.start("assistant", [*arguments, *flags], logs, says_ready=True, bystander=False)
    with processes.ending(child):
        yield str(processes.wait_until_ready(child, 60.0)["url"])


@dataclass
class Callers:
    """Some callers of one engine and the turns that they heard, call by call."""

    url: str
    count: int
    turns_per_call: int = 1
    length: str = "short"
    noise: str | None = None
    snr_db: float | None = None
    reply_s: float = 6.0
    ready_s: float = 6.0
    patience_s: float | None = None
    manual_turns: bool = False
    endpointing_ms: int | None = 200
    protocol: str = "openai-realtime"
    corpus: str = CORPUS
    clips: int = 6
    max_message_bytes: int = 16 * 2**20
    ca_file: str | None = None
    limits: ValidityLimits = field(default_factory=lambda: LENIENT)

    def prepared(self) -> PreparedCorpus:
        """The speech, rendered and encoded."""
        settings = SwarmSettings(
            host=self.url, corpus=self.corpus, length=self.length, noise=self.noise, snr=self.snr_db, clips=self.clips
        )
        return prepare(settings, registry.make_caller(self.protocol, CallerOptions()))

    def call(self) -> list[list[Turn]]:
        """Make all calls at once; the turns of each."""
        prepared = self.prepared()
        options = CallerOptions(
            turn_control="manual" if self.manual_turns else "server", silence_duration_ms=self.endpointing_ms
        )
        limits = Limits(reply_ns=round(self.reply_s * SECOND_NS), ready_ns=round(self.ready_s * SECOND_NS))
        planner = Planner(
            prepared.clips,
            prepared.background,
            turns_per_call=self.turns_per_call,
            think_s=0.1,
            patience_s=self.patience_s,
            limits=limits,
            manual_turns=self.manual_turns,
            seed=1,
        )
        engine = Engine(
            frame_ns=20_000_000,
            onset_preset="rms-10ms",
            max_message_bytes=self.max_message_bytes,
            tls_context=tls_context(self.ca_file),
        )
        record = RecordOptions(
            self.limits, keep_transcripts=True, word_errors=word_errors, unix_ns=engine.clocks.to_unix_ns
        )

        def one(index: int) -> list[Turn]:
            protocol = registry.make_caller(self.protocol, options)
            request = protocol.upgrade(self.url, f"00-{index + 1:032x}-{1:016x}-01")
            turns: list[Turn] = []
            for call, exchange in engine.call(planner.plan(f"call-{index}"), protocol, request):
                connection = call.connection
                facts = CallFacts(
                    run_id="test",
                    call_id=call.plan.call_id,
                    scenario=None,
                    noise_profile=self.noise or "clean",
                    channel_profile="clean",
                    protocol=self.protocol,
                    target=self.url,
                    region=None,
                    cohort=None,
                    model=None,
                    onset_preset="rms-10ms",
                    connect_ns=call.connect_ns,
                    start_late_ns=None,
                    receive_stamp=connection.stamp_kind if connection is not None else "user",
                    pacer=engine.pacer,
                    not_observable=protocol.capabilities.not_observable,
                )
                turns.append(build_turn(exchange, facts, record))
            return turns

        try:
            callers = [gevent.spawn(one, index) for index in range(self.count)]
            gevent.joinall(callers, raise_error=True)
        finally:
            engine.close()
        return [caller.value for caller in callers]
