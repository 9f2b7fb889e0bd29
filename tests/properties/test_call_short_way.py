"""However the bytes of a reply are cut, a call that takes the short way records the same turns as one that does not."""

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.server import ServerProtocol

from loadtest.conversation.record import build_turn
from loadtest.conversation.state import State
from loadtest.engine.call import Call
from loadtest.engine.clock import Clocks
from loadtest.engine.timing_wheel import WheelSlot
from loadtest.engine.transports.stream import StreamTransport
from loadtest.protocols.address import parse_address
from loadtest.protocols.base import Outgoing, VoiceEvent
from loadtest.protocols.failure import Failure
from loadtest.protocols.registry import make_caller
from loadtest.protocols.transports.websocket import WebSocketClient
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS
from tests.unit.loadtest.conversation.world import MS, make_plan
from tests.unit.loadtest.engine.test_engine_call import FRAME, Caller, FakeEngine, Wire
from tests.unit.loadtest.protocols.contract.line import SCRIPTS, tone
from tests.unit.loadtest.protocols.contract.wire_script import Messages

# JSON with names, JSON without, ended by silence, and two of bare audio, one of which ends by silence.
NAMES = ("openai-realtime", "gemini-live", "twilio", "vonage", "deepgram-agent")
PIECES = 40
PIECE_MS = 20


class ScriptedTransport(StreamTransport):
    """A transport whose endpoint answers what the call sends, by its script."""

    def __init__(self, engine: FakeEngine, script: Any, protocol: Any) -> None:
        self.server = ServerProtocol()
        self.script = script
        request = protocol.upgrade(script.url, None)
        parts: Any = SimpleNamespace(connections=SimpleNamespace(clocks=engine.clocks))
        super().__init__(parts, parse_address(request.url), WebSocketClient(request))
        self.answers: list[bytes] = []

    def send(self, message: Outgoing) -> None:
        self.answers.append(self.framed(self.script.answers(message)))

    def framed(self, messages: Messages | None) -> bytes:
        for message in messages or ():
            if isinstance(message, str):
                self.server.send_text(message.encode())
            else:
                self.server.send_binary(message)
        return b"".join(self.server.data_to_send())


class ScriptedCaller(Caller):
    """A call that has asked, and its scripted endpoint."""

    def __init__(self, name: str) -> None:
        script = SCRIPTS[name]()
        protocol = make_caller(name, script.options)
        engine, self.wire = FakeEngine(), Wire()
        self.wire.stamped = True
        self.transport = ScriptedTransport(engine, script, protocol)
        self.call = Call(engine, make_plan(), protocol, self.transport, "rms-10ms")
        self.transport.take_over(self.wire, self.call)  # type: ignore[arg-type]  # a fake connection
        self.transport.secured()
        self.transport.server.receive_data(b"".join(self.wire.sent))
        (request,) = self.transport.server.events_received()
        self.transport.server.send_response(self.transport.server.accept(request))  # type: ignore[arg-type]
        frame_ns = protocol.capabilities.frame_ms * MS
        self.slot: WheelSlot[Call] = WheelSlot(1000 * FRAME, frame_ns)
        self.now_perf_ns = self.slot.due_perf_ns
        engine.clocks = Clocks(lambda: self.now_perf_ns, lambda: self.now_perf_ns)
        self.slot.add(self.call.entry, self.call, self.slot.due_perf_ns)
        self.receive(b"".join(self.transport.server.data_to_send()))
        self.receive(self.transport.framed(script.greets()))
        assert self.call.connect_ns is not None
        self.call.begin(self.slot.due_perf_ns)
        self.speak()
        self.receive(b"")

    def receive(self, data: bytes) -> None:
        """The endpoint's bytes arrive, and then its answers to what the call sends thereupon."""
        now = self.slot.due_perf_ns
        self.transport.receive(now - MS, now, data)
        while self.transport.answers:
            self.transport.receive(now - MS, now, self.transport.answers.pop(0))

    def reply(self) -> bytes:
        """The bytes of a reply in small pieces, whole."""
        script, framed = self.transport.script, b""
        for stage in script.order[script.order.index(script.first_after_speech) :]:
            if stage == "audio":
                for number in range(PIECES):
                    pcm = tone(script.reply_rate_hz, PIECE_MS)
                    framed += self.transport.framed(script.audio(pcm if number % 7 else bytes(len(pcm))))
            elif stage in ("partial", "final", "text"):
                framed += self.transport.framed(getattr(script, stage)("It is on. "))
            else:
                framed += self.transport.framed(getattr(script, stage)())
        return framed

    def turns(self) -> list[Any]:
        found: list[Any] = []
        while (exchange := self.call.exchanges.get(timeout=0) if self.call.exchanges.qsize() else None) is not None:
            found.append(build_turn(exchange, CALL, OPTIONS))
        return found


class CountedWay:
    """The short way of a call, counted; or none."""

    def __init__(self, caller: Caller, *, shortened: bool) -> None:
        self.taken = 0
        self._shortened = shortened
        self._hear_more = caller.call.conversation.hear_more
        caller.call.conversation.hear_more = self

    def __call__(self, event: VoiceEvent, arrival_perf_ns: int) -> bool:
        heard = self._shortened and self._hear_more(event, arrival_perf_ns)
        self.taken += heard
        return heard


def answered(name: str, cuts: Sequence[int], ends_at: int | None, *, shortened: bool) -> tuple[list[Any], int]:
    """The turns of a call whose reply comes in pieces, cut at these places, and how much took the short way.

    With `ends_at` the connection is lost behind so many pieces.
    """
    caller = ScriptedCaller(name)
    way = CountedWay(caller, shortened=shortened)
    whole = caller.reply()
    edges = [0, *sorted({cut % (len(whole) + 1) for cut in cuts}), len(whole)]
    for number, (begin, end) in enumerate(pairwise(edges)):
        if number == ends_at:
            caller.transport.disconnected("the connection is gone", Failure("tcp", "EOF"))
            break
        caller.receive(whole[begin:end])
        caller.rows(1)
    for _ in range(1_500):
        if caller.call.ended or caller.call.conversation.state is State.THINKING:
            break
        caller.rows(1)
    return caller.turns(), way.taken


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 2**16), max_size=60), ends_at=st.none() | st.none() | st.integers(0, 60))
def test_any_cut_of_a_reply_gives_the_same_turns_both_ways(name: str, cuts: list[int], ends_at: int | None) -> None:
    short, _ = answered(name, cuts, ends_at, shortened=True)
    long, none_taken = answered(name, cuts, ends_at, shortened=False)
    assert short == long
    assert len(short) == 1
    assert none_taken == 0
    if ends_at is None:
        assert short[0].reply_audio_ns == PIECES * PIECE_MS * MS, "nothing is lost"


@pytest.mark.parametrize("name", NAMES)
def test_each_piece_takes_the_short_way_also_where_many_are_read_at_once(name: str) -> None:
    whole = ScriptedCaller(name).reply()
    for cuts in ([len(whole) // 2], range(0, len(whole), 97)):
        turns, taken = answered(name, list(cuts), None, shortened=True)
        assert turns[0].outcome == "ok"
        assert taken >= PIECES // 2 - 3
