"""A call over TCP, whose wire has a framing of its own and no handshake."""

from dataclasses import replace
from typing import Any

from loadtest.engine.call import Call
from loadtest.engine.transports.opening import make_transport
from loadtest.engine.transports.stream import StreamTransport
from loadtest.protocols.base import CallerOptions, OpenRequest
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from tests.unit.loadtest.conversation.world import MS, make_plan
from tests.unit.loadtest.engine.test_engine_call import FakeEngine, Wire


class LinesCaller(OpenAIRealtimeCaller):
    """A protocol over TCP: what it says and hears is noted."""

    def __init__(self, framing: str) -> None:
        super().__init__(CallerOptions())
        kind = {"transport": "tcp", "framing": framing, "ready_when_open": True}
        self.capabilities = replace(self.capabilities, **kind)  # type: ignore[arg-type]  # fields of it
        self.heard: list[Any] = []

    def opened(self) -> list[bytes]:
        return [b'{"type":"describe"}\n']

    def receive(self, message: Any) -> list[Any]:
        self.heard.append(message)
        return []


def connected(framing: str = "event_lines") -> tuple[LinesCaller, Call, StreamTransport, Any]:
    protocol, engine, wire = LinesCaller(framing), FakeEngine(), Wire()
    parts: Any = type("Parts", (), {"connections": engine, "max_message_bytes": 1000, "mask": "fixed"})
    transport = make_transport(parts, protocol, OpenRequest("tcp://127.0.0.1:10300"))
    assert isinstance(transport, StreamTransport)
    call = Call(engine, make_plan(), protocol, transport, "rms-10ms")
    transport.take_over(wire, call)  # type: ignore[arg-type]  # a fake connection
    transport.secured()
    return protocol, call, transport, wire


def test_the_call_is_open_with_the_connection() -> None:
    protocol, call, transport, wire = connected()
    assert wire.sent == [b'{"type":"describe"}\n']
    assert call.ready.is_set()
    transport.receive(MS, MS, b'{"type":"info","payload_length":3}\nab')
    assert protocol.heard == []
    transport.receive(MS, MS, b'c{"type":')
    assert protocol.heard == [b'{"type":"info","payload_length":3}\nabc']


def test_unreadable_framing_ends_the_call() -> None:
    _, call, transport, _ = connected("length_prefixed")
    transport.receive(MS, MS, (1001).to_bytes(4, "big"))
    assert call.ended
    exchange = call.exchanges.get_nowait()
    assert exchange is not None
    assert exchange.reason == ("a message of 1001 bytes is longer than voiceprobe takes: its own limit is 1000 bytes")
