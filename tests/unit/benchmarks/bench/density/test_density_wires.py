"""Each wire's endpoint says what its caller needs: the session opens, and a chunk is 20 ms of a reply."""

import numpy as np
import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from loadtest.protocols import registry
from loadtest.protocols.base import CallerProtocol, EventKind, VoiceEvent
from loadtest.protocols.transports.event_lines import EventLines
from tests.benchmarks.bench.density.wires import RAW_WIRE, WIRES, DensityWire, not_compared

EVERY = (RAW_WIRE, *WIRES)


def items_of(data: bytes) -> list[str | bytes]:
    """The messages in a server's frames, as a library reads them that did not write them."""
    client = ClientProtocol(parse_uri("ws://h/"))
    client.state = State.OPEN
    client.parser = client.parse()
    next(client.parser)
    client.receive_data(data)
    assert client.parser_exc is None
    frames = [event for event in client.events_received() if isinstance(event, Frame)]
    return [bytes(each.data).decode() if each.opcode is Opcode.TEXT else bytes(each.data) for each in frames]


def heard(wire: DensityWire, caller: CallerProtocol, data: bytes) -> list[VoiceEvent]:
    items = EventLines().receive(data) if wire.is_tcp else items_of(data)
    return [event for item in items for event in caller.receive(item)]


def called(wire: DensityWire) -> CallerProtocol:
    caller = wire.caller()
    caller.upgrade("tcp://h:1/" if wire.is_tcp else "ws://h/", None)
    caller.opened()
    return caller


@pytest.mark.parametrize("wire", EVERY, ids=[wire.name for wire in EVERY])
def test_the_session_opens_and_every_chunk_is_heard(wire: DensityWire) -> None:
    caller = called(wire)
    opened = heard(wire, caller, wire.on_wire(*wire.greeting))
    assert caller.capabilities.ready_when_open or EventKind.READY in {event.kind for event in opened}
    heard(wire, caller, wire.on_wire(*wire.beginning))
    if wire.chunk is None:
        return
    first, second = (heard(wire, caller, wire.on_wire(wire.chunk)) for _ in range(2))
    assert [event.kind for event in first] == [event.kind for event in second]
    (event,) = second
    if wire.name == "vllm-realtime":
        assert (event.kind, event.text) == (EventKind.ASR_PARTIAL, "light ")
        return
    assert (event.kind, event.failure) == (EventKind.AUDIO, None)
    assert event.audio is not None
    assert event.rate_hz is not None
    assert len(event.audio) == event.rate_hz * 2 * 20 // 1000
    assert np.abs(np.frombuffer(event.audio, "<i2")).max() > 1000


def test_what_is_not_compared_is_named() -> None:
    streamed = {name for name in registry.names() if registry.describe(name).transport in ("websocket", "tcp")}
    assert set(not_compared()) == streamed - {wire.protocol for wire in WIRES} - {"openai-realtime-beta"}
