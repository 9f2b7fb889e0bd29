"""Real callers against a real endpoint process, without Locust: what the engine's integration tests share."""

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent

from loadtest.conversation.evidence import ValidityLimits
from loadtest.conversation.exchange import Exchange
from loadtest.conversation.plan import Limits
from loadtest.conversation.record import CallInfo, RecordOptions, build_turn
from loadtest.conversation.transcripts import word_errors
from loadtest.engine.call import Call
from loadtest.engine.clock import Clocks
from loadtest.engine.engine import Engine
from loadtest.engine.pacer import open_pacer
from loadtest.engine.tls import TlsClient, tls_client
from loadtest.engine.transports.opening import can_be_paced
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions, CallerProtocol
from loadtest.run import processes
from loadtest.scenario.behavior import BargeIn, CallerBehavior, parse_patience, parse_point, parse_think
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.preparation import PreparedCorpus, prepare
from loadtest.swarm.planner import CallPlanner
from telemetry.model.turns import Turn

SECOND_NS = 1_000_000_000
CORPUS = "voiceprobe-en"
# A busy machine may make a turn invalid; what a test asks is what happened, so validity is judged in its own tests.
LENIENT = ValidityLimits(frame_lateness_ns=10 * SECOND_NS, drift_ns=10 * SECOND_NS, blocked_ns=10 * SECOND_NS)
# Speech that was rendered and encoded for callers of this process: that of the next ones is mostly the same.
_PREPARED: dict[str, PreparedCorpus] = {}


@contextlib.contextmanager
def assistant(logs: Path, *flags: str) -> Generator[str]:
    """A reference assistant of its own process, with quick scripted engines; gives its URL."""
    arguments = ["-m", "loadtest.targets.assistant", "--port", "0", "--corpus", CORPUS, "--tts-pace", "0"]
    child = processes.start("assistant", [*arguments, *flags], logs, says_ready=True, bystander=False)
    with processes.ending(child):
        yield str(processes.wait_until_ready(child, 60.0)["url"])


@dataclass
class Callers:
    """Some callers of one engine and the turns that they heard, call by call."""

    url: str
    count: int
    turns_per_call: int = 1
    length: str | None = "short"
    noise: str | None = None
    snr_db: float | None = None
    # Callers are patient: a machine may pause for seconds. Where nothing comes, a test says how long they wait.
    reply_s: float = 60.0
    longest_reply_s: float = 60.0
    ready_s: float = 60.0
    patience_s: float | None = None
    manual_turns: bool = False
    endpointing_ms: int | None = 200
    protocol: str = "openai-realtime"
    wire_settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    corpus: str = CORPUS
    clips: int = 6
    max_message_bytes: int = 16 * 2**20
    tls: TlsClient = field(default_factory=tls_client)
    headers: tuple[tuple[str, str], ...] = ()
    token: str | None = None
    model: str | None = None
    limits: ValidityLimits = field(default_factory=lambda: LENIENT)
    think_s: float = 0.1
    behavior: CallerBehavior | None = None  # wins over turns_per_call, think_s and patience_s
    clocks: Clocks | None = None
    has_pacer: bool = True  # whether the pacer thread sends the frames, where it can
    exchanges: list[Exchange] = field(default_factory=list[Exchange])  # of all calls, as they end
    meanwhile: Callable[[Engine], None] = lambda engine: None  # runs in its own greenlet, during the calls

    def prepared(self) -> PreparedCorpus:
        """The speech, rendered and encoded."""
        conversations = self.behavior is not None and self.behavior.conversations
        of_speech = {"corpus": self.corpus, "length": self.length, "noise": self.noise, "snr": self.snr_db}
        of_speech |= {"clips": self.clips, "conversations": conversations}
        known = repr((self.protocol, self.wire_settings, of_speech))
        if known not in _PREPARED:
            caller = registry.make_caller(self.protocol, CallerOptions(settings=self.wire_settings))
            _PREPARED[known] = prepare(SwarmSettings(host=self.url, **of_speech), caller)
        return _PREPARED[known]

    def planner(self, prepared: PreparedCorpus) -> CallPlanner:
        """Return the planner of the calls."""
        limits = Limits(
            reply_ns=round(self.reply_s * SECOND_NS),
            longest_reply_ns=round(self.longest_reply_s * SECOND_NS),
            ready_ns=round(self.ready_s * SECOND_NS),
        )
        return CallPlanner(
            prepared.lines,
            behavior=self.behavior
            or CallerBehavior(
                turns=self.turns_per_call,
                think=parse_think(self.think_s),
                patience=None if self.patience_s is None else parse_patience(self.patience_s),
            ),
            conversations=prepared.corpus.conversations,
            limits=limits,
            manual_turns=self.manual_turns,
            seed=1,
        )

    def call(self) -> list[list[Turn]]:
        """Make all calls at once; the turns of each."""
        prepared = self.prepared()
        control = "manual" if self.manual_turns else "server"
        options = CallerOptions(
            control,
            model=self.model,
            silence_duration_ms=None if self.manual_turns else self.endpointing_ms,
            headers=self.headers,
            settings=self.wire_settings,
            token=self.token,
        )
        planner = self.planner(prepared)
        capabilities = registry.make_caller(self.protocol, options).capabilities
        engine = Engine(
            frame_ns=capabilities.frame_ms * 1_000_000,
            onset_preset="rms-10ms",
            clocks=self.clocks,
            max_message_bytes=self.max_message_bytes,
            tls=self.tls,
            pacer=open_pacer()[0] if self.has_pacer and can_be_paced(capabilities, self.url) else None,
        )
        record = RecordOptions(
            self.limits, keep_transcripts=True, word_errors=word_errors, unix_ns=engine.clocks.to_unix_ns
        )

        def one(index: int) -> list[Turn]:
            protocol = registry.make_caller(self.protocol, options)
            request = protocol.upgrade(self.url, f"00-{index + 1:032x}-{1:016x}-01")
            ended: list[tuple[Call, Exchange]] = []
            for call, exchange in engine.call(planner.plan(f"call-{index}"), protocol, request):
                ended.append((call, exchange))
                self.exchanges.append(exchange)
            # A transcript may come after its turn.
            return [build_turn(exchange, self._info(call, engine, protocol), record) for call, exchange in ended]

        try:
            callers = [gevent.spawn(one, index) for index in range(self.count)]
            gevent.joinall([*callers, gevent.spawn(self.meanwhile, engine)], raise_error=True)
        finally:
            engine.close()
        return [caller.value for caller in callers]

    def _info(self, call: Call, engine: Engine, protocol: CallerProtocol) -> CallInfo:
        return CallInfo(
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
            prior_request_ns=call.prior_request_ns,
            endpoint_headers=call.endpoint_headers,
            start_late_ns=None,
            receive_stamp=call.receive_stamp,
            pacer=engine.pacer_of(call),
            not_observable=protocol.capabilities.not_observable,
        )


def interrupting(point: str, turns: int = 2) -> CallerBehavior:
    """Return the behavior of callers who speak into each reply at a point of it."""
    barge_in = [BargeIn(share=1.0, after=parse_point(point))]
    return CallerBehavior(turns=turns, think=parse_think(0.1), barge_in=barge_in)


def reasons(turns: Sequence[Turn]) -> str:
    """Why turns ended as they did, for the message of an assertion."""
    return str([(turn.outcome, turn.outcome_reason, turn.barge_in_reason) for turn in turns])


def in_order(*moments_perf_ns: int | None) -> list[int]:
    """The moments: all of them are known, and none comes before the one before it."""
    known = [moment for moment in moments_perf_ns if moment is not None]
    assert len(known) == len(moments_perf_ns)
    assert known == sorted(known)
    return known
