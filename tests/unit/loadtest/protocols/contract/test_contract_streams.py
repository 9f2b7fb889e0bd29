"""However the bytes of a session are cut, every registered protocol decodes the same; and nothing makes it raise."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby, pairwise
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from websockets.server import ServerProtocol

from loadtest.protocols.base import EventKind, Incoming, OpenRequest, VoiceEvent
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpFailed, HttpHead, HttpRequest
from loadtest.protocols.registry import make_caller
from loadtest.protocols.transports.websocket import WebSocketClient
from loadtest.protocols.webrtc_items import ChannelOpen, LocalOffer, PeerAudio, PeerQuiet, PeerReport
from tests.unit.loadtest.protocols.contract.line import SCRIPTS, Call, Line, Received, joined, kinds, opening_events

every_wire = pytest.mark.parametrize("name", sorted(SCRIPTS))
# What comes over WebRTC comes in whole messages.
every_stream = pytest.mark.parametrize(
    "name",
    [name for name in sorted(SCRIPTS) if Line(name).caller.capabilities.transport not in ("webrtc", "livekit-room")],
)
# One key for every handshake, so that the same bytes answer them all.
KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
EVERYWHERE: Final = tuple(range(4096))
Decoder = Callable[[bytes], Sequence[Any]]


@cache
def session(name: str) -> tuple[Call | Received, ...]:
    """Return the caller's events in a whole session of one answered turn."""
    line = Line(name)
    line.open()
    line.turn()
    return tuple(line.log)


def websocket(groups: Sequence[Sequence[Incoming]]) -> tuple[list[bytes], Decoder]:
    """The server's bytes, group by group, by the `websockets` package, and a decoder of them."""
    client, server = WebSocketClient(OpenRequest("ws://h/")), ServerProtocol()
    client._wire.key = KEY  # pyright: ignore[reportPrivateUsage]
    server.receive_data(client.start())
    (request,) = server.events_received()
    server.send_response(server.accept(request))  # type: ignore[arg-type]  # the first event is the request
    sent: list[bytes] = []
    for group in groups:
        for message in group:
            if isinstance(message, str):
                server.send_text(message.encode())
            else:
                server.send_binary(message)
        sent.append(b"".join(server.data_to_send()))
    return sent, client.receive


def _messages(items: Sequence[Any]) -> list[str | bytes]:
    return [item for item in items if isinstance(item, str | bytes)]


def cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The data in pieces, none of them empty."""
    edges = [0, *sorted({place % (len(data) + 1) for place in cuts}), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges) if end > begin]


def replayed(name: str, cuts: Sequence[int]) -> list[tuple[Any, ...]]:
    """The events of the session, the bytes of what was received without a call between cut at these positions."""
    script = SCRIPTS[name]()
    caller = make_caller(name, script.options)
    stretches = [(received, list(group)) for received, group in groupby(session(name), _is_received)]
    groups = [[one.message for one in group if isinstance(one, Received)] for received, group in stretches if received]
    transport = caller.capabilities.transport
    if transport == "http":
        pieces = [_recut(group, cuts) for group in groups]
    else:
        if transport == "websocket":
            streams, receive = websocket(groups)
        else:
            streams, receive = [script.encoded(group) for group in groups], script.decoder().receive
        pieces = [[item for piece in cut(data, cuts) for item in _messages(receive(piece))] for data in streams]
    events: list[VoiceEvent] = []
    following = iter(pieces)
    for received, group in stretches:
        if not received:
            for call in group:
                assert isinstance(call, Call)
                getattr(caller, call.method)(*call.args)
                if call.method == "opened":
                    events += opening_events(caller)
            continue
        for message in next(following):
            events += caller.receive(message)
            caller.pending()
    return joined(events)


def _is_received(entry: Call | Received) -> bool:
    return isinstance(entry, Received)


def _recut(messages: Sequence[Incoming], cuts: Sequence[int]) -> list[Incoming]:
    recut: list[Incoming] = []
    for message in messages:
        if isinstance(message, HttpData):
            recut += [HttpData(message.request_id, piece) for piece in cut(message.data, cuts)]
        else:
            recut.append(message)
    return recut


@settings(max_examples=30, deadline=None)
@example(cuts=EVERYWHERE)  # byte by byte
@given(cuts=st.lists(st.integers(0, 2**16), max_size=12))
@every_stream
def test_any_cut_of_the_bytes_gives_the_same_events(name: str, cuts: Sequence[int]) -> None:
    line = Line(name)
    line.open()
    line.turn()
    assert replayed(name, cuts) == joined(line.events)


ANY_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def _twisted(value: Any, at: int, inner: Any) -> Any:
    """A copy of a JSON value in which the member number `at`, counted in depth, is another value."""
    counter = iter(range(10_000))

    def copy(one: Any) -> Any:
        if next(counter) == at:
            return inner
        if isinstance(one, dict):
            return {key: copy(member) for key, member in one.items()}  # pyright: ignore[reportUnknownVariableType]
        return [copy(member) for member in one] if isinstance(one, list) else one  # pyright: ignore[reportUnknownVariableType]

    return copy(value)


def of_a_peer(requests: Sequence[str]) -> st.SearchStrategy[Incoming]:
    """Draw items of a peer connection with senseless contents."""
    name = st.sampled_from([*requests, "nobody"])
    pcm, rate_hz = st.binary(max_size=60), st.integers(-1, 96_000)
    return (
        st.builds(PeerAudio, pcm, rate_hz, st.integers(0, 9), st.integers(0, 10**9))
        | st.builds(LocalOffer, st.text(max_size=20))
        | st.sampled_from([ChannelOpen(), PeerQuiet(), PeerReport(3, 0)])
        | st.builds(HttpHead, name, st.integers(0, 999))
        | st.builds(HttpData, name, pcm | st.just(b'{"sdp":"v=0","type":"offer"}'))
        | st.builds(HttpEnd, name)
    )


@st.composite
def mistaken(draw: st.DrawFn, known: Sequence[Incoming], transport: str, requests: Sequence[str]) -> Incoming:
    """A message that no server should send: arbitrary, or a known one with a part that is wrong."""
    if transport == "http":
        name = draw(st.sampled_from([*requests, "nobody"]))
        data = st.binary(max_size=60) | st.sampled_from(
            [message.data for message in known if isinstance(message, HttpData)]
        )
        return draw(
            st.builds(HttpHead, st.just(name), st.integers(0, 999))
            | st.builds(HttpData, st.just(name), data)
            | st.just(HttpEnd(name))
            | st.just(HttpFailed(name, "the connection is gone", Failure("tcp", "EOF")))
        )
    if transport == "webrtc" and draw(st.booleans()):
        return draw(of_a_peer(requests))
    one = draw(st.sampled_from([message for message in known if isinstance(message, str | bytes)]))
    raw = one.encode() if isinstance(one, str) else one
    kind = draw(st.sampled_from(["json", "bytes", "shorter", "changed", "twisted"]))
    if kind == "json":
        raw = json.dumps(draw(ANY_JSON)).encode()
    elif kind == "bytes":
        raw = draw(st.binary(max_size=60))
    elif kind == "shorter":
        raw = raw[: draw(st.integers(0, len(raw)))]
    elif kind == "changed" and raw:
        at = draw(st.integers(0, len(raw) - 1))
        raw = raw[:at] + draw(st.binary(min_size=1, max_size=3)) + raw[at + 1 :]
    elif kind == "twisted":
        try:
            raw = json.dumps(_twisted(json.loads(raw), draw(st.integers(0, 12)), draw(ANY_JSON))).encode()
        except ValueError:
            raw = raw[::-1]  # not JSON
    as_text = transport != "tcp" and draw(st.booleans())
    return raw.decode(errors="replace") if as_text else raw


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
@every_wire
def test_no_message_makes_it_raise(name: str, data: st.DataObject) -> None:
    line = Line(name)
    known = [entry.message for entry in session(name) if isinstance(entry, Received)]
    if data.draw(st.booleans()):
        line.open()
    if data.draw(st.booleans()):
        line.turn(until=data.draw(st.sampled_from(line.script.order)))
    caller = line.caller
    requests = [sent.request_id for sent in line.sent if isinstance(sent, HttpRequest)]
    for _ in range(data.draw(st.integers(1, 4))):
        message = data.draw(mistaken(known, caller.capabilities.transport, requests))
        for event in caller.receive(message):
            assert isinstance(event, VoiceEvent)
            if event.kind is EventKind.ERROR:
                assert event.message
                assert event.failure is not None
        caller.pending()
    caller.goodbye()


@every_wire
def test_a_session_says_something_in_every_stage(name: str) -> None:
    line = Line(name)
    line.open()
    line.turn()
    assert EventKind.READY in kinds(line.events)
    assert len(kinds(line.events)) > 1, "a script that says nothing would pass every other test here"
