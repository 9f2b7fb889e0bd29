"""However the bytes of a connection and a reply's audio are cut, the same items, events and samples come out."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.protocol import State
from websockets.server import ServerProtocol

from loadtest.protocols.base import CallerOptions, EventKind, OpenRequest, VoiceEvent
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.openai_realtime.names import BETA_NAMES, ServerEvent
from loadtest.protocols.openai_realtime.service import Refused, ServiceSession
from loadtest.protocols.transports.masked_frames import frame
from loadtest.protocols.transports.websocket import Item, WebSocketClient
from tests.unit.loadtest.protocols.telephony.calls import VARIANTS, make, tone

FIXTURES = Path(__file__).parents[1] / "fixtures" / "openai_realtime"
RECORDED = (FIXTURES / "s2s-1.1.0.jsonl").read_text().splitlines()[1:]


def connected() -> tuple[WebSocketClient, ServerProtocol]:
    client, server = WebSocketClient(OpenRequest("ws://h/"), max_message_bytes=2**17), ServerProtocol()
    # One key for every connection, so that the same bytes answer them all.
    client._wire.key = "dGhlIHNhbXBsZSBub25jZQ=="
    server.receive_data(client.start())
    (request,) = server.events_received()
    server.send_response(server.accept(request))  # type: ignore[arg-type]  # the first event is the request
    return client, server


def items_of(data: bytes, cuts: list[int]) -> tuple[list[Item], str]:
    client, _ = connected()
    items: list[Item] = []
    start = 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        items += client.receive(data[start:cut])
        start = cut
    items += client.receive_eof()
    return items, client.state


small = st.integers(0, 300)
frames = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.text(max_size=80)),
        st.tuples(st.just("binary"), st.binary(max_size=300)),
        st.tuples(st.just("ping"), st.binary(max_size=20)),
        st.tuples(st.just("fragments"), st.lists(st.text(max_size=20), min_size=1, max_size=4)),
        st.tuples(st.just("raw"), st.binary(max_size=6)),
    ),
    max_size=8,
)


def stream_of(pieces: list[tuple[str, Any]], *, close: bool) -> bytes:
    _, server = connected()
    out = b"".join(server.data_to_send())
    for kind, value in pieces:
        if kind == "text":
            server.send_text(value.encode())
        elif kind == "binary":
            server.send_binary(value)
        elif kind == "ping":
            server.send_ping(value)
        elif kind == "fragments":
            server.send_text(value[0].encode(), fin=len(value) == 1)
            for index, part in enumerate(value[1:], 2):
                server.send_continuation(part.encode(), fin=index == len(value))
        out += b"".join(server.data_to_send()) + (value if kind == "raw" else b"")
    if close:
        server.send_close(1000, "bye")
    return out + b"".join(server.data_to_send())


@pytest.mark.slow
@given(frames, st.booleans(), st.lists(st.integers(0, 3000), max_size=20))
def test_any_cut_of_the_stream_gives_the_same_items(
    pieces: list[tuple[str, Any]], close: bool, cuts: list[int]
) -> None:
    data = stream_of(pieces, close=close)
    assert items_of(data, cuts) == items_of(data, [])


@pytest.mark.slow
@given(frames, st.booleans())
def test_byte_by_byte_gives_the_same_items(pieces: list[tuple[str, Any]], close: bool) -> None:
    data = stream_of(pieces, close=close)
    assert items_of(data, list(range(len(data)))) == items_of(data, [])


@given(frames)
def test_whole_messages_come_out_as_they_went_in(pieces: list[tuple[str, Any]]) -> None:
    wanted = [
        "".join(value) if kind == "fragments" else value
        for kind, value in pieces
        if kind in ("text", "binary", "fragments")
    ]
    data = stream_of([piece for piece in pieces if piece[0] != "raw"], close=True)
    items, _ = items_of(data, [])
    assert items[1:-1] == wanted


@given(st.binary(max_size=200), st.integers(0, 200))
def test_garbage_never_raises(data: bytes, cut: int) -> None:
    client = WebSocketClient(OpenRequest("ws://h/"))
    client.start()
    items = client.receive(data[:cut]) + client.receive(data[cut:]) + client.receive_eof()
    assert len(items) == 1
    open_one, server = connected()
    open_one.receive(b"".join(server.data_to_send()))
    open_one.receive(data)
    open_one.receive_eof()
    open_one.take_output()
    assert open_one.state == "closed"


def events_of(data: bytes, cuts: list[int]) -> list[VoiceEvent]:
    caller = OpenAIRealtimeCaller(CallerOptions())
    items, _ = items_of(data, cuts)
    return [event for item in items if isinstance(item, str | bytes) for event in caller.receive(item)]


def recorded_stream() -> bytes:
    _, server = connected()
    for line in RECORDED:
        server.send_text(line.encode())
    server.send_close()
    return b"".join(server.data_to_send())


STREAM = recorded_stream()
WHOLE = events_of(STREAM, [])


@settings(max_examples=40)
@given(st.lists(st.integers(0, len(STREAM)), max_size=60))
def test_recorded_session_gives_same_events_in_any_fragments(cuts: list[int]) -> None:
    assert len(WHOLE) == len(RECORDED)
    assert events_of(STREAM, cuts) == WHOLE


@given(st.binary(max_size=70_000), st.booleans(), st.binary(min_size=4, max_size=4))
def test_prepared_frames_unmask_to_what_went_in(payload: bytes, text: bool, mask: bytes) -> None:
    server = ServerProtocol(state=State.OPEN)
    server.receive_data(frame(payload, mask=mask, text=text))
    (event,) = server.events_received()
    assert bytes(event.data) == payload  # type: ignore[union-attr]  # a frame


# A pool to draw from: building deep random JSON each time is most of a property's time.
SCALARS: list[Any] = [None, True, False, 0, 1, -1, 2**70, 1.5, -0.0, 1e300, float("nan"), float("inf"), "", "x", "AAA="]
NESTED: list[Any] = [[], {}, [[]], [None], ["audio"], ["text", "audio"], {"type": "audio/pcm"}, {"type": 3}, {"id": []}]
DEEPER: list[Any] = [{"input": {"format": value}, "output": {"format": value, "voice": value}} for value in NESTED]
USAGE: list[Any] = [
    {"total_tokens": value, "input_token_details": value, "seconds": value} for value in SCALARS + NESTED
]
json_values = st.sampled_from(SCALARS + NESTED + DEEPER + USAGE)
server_types = st.sampled_from([*map(str, ServerEvent), *BETA_NAMES.values(), "unknown", ""])
client_types = st.sampled_from(
    [
        "session.update",
        "input_audio_buffer.append",
        "input_audio_buffer.commit",
        "input_audio_buffer.clear",
        "response.create",
        "response.cancel",
        "conversation.item.create",
        "conversation.item.truncate",
        "conversation.item.delete",
    ]
)
KEYS = ["session", "response", "delta", "response_id", "item_id", "audio_start_ms", "audio_end_ms", "error", "usage"]
MORE = ["transcript", "content_index", "audio", "item", "event_id", "metadata", "turn_detection", "output_modalities"]
fields = st.dictionaries(
    st.sampled_from(KEYS + MORE), json_values | st.dictionaries(st.sampled_from(MORE), json_values)
)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.tuples(server_types, fields), max_size=6))
def test_no_server_event_makes_the_caller_raise(events: list[tuple[str, dict[str, Any]]]) -> None:
    caller = OpenAIRealtimeCaller(CallerOptions())
    for kind, rest in events:
        for event in caller.receive(json.dumps({"type": kind} | rest)):
            assert event.message if event.kind == "error" else event.kind
        caller.pending()
        caller.interrupt(100)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.tuples(client_types, fields), max_size=6))
def test_no_client_event_makes_the_service_raise(events: list[tuple[str, dict[str, Any]]]) -> None:
    session = ServiceSession(lambda prefix: prefix)
    for kind, rest in events:
        (command,) = session.receive(json.dumps({"type": kind} | rest))
        if isinstance(command, Refused):
            assert json.loads(command.reply)["error"]["message"]
    session.updated()


@given(st.text(max_size=40) | st.binary(max_size=40))
def test_no_message_at_all_makes_a_role_raise(message: str | bytes) -> None:
    assert len(OpenAIRealtimeCaller(CallerOptions()).receive(message)) == 1
    assert len(ServiceSession(lambda prefix: prefix).receive(message)) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
# Members that the wires know, with anything in them.
MESSAGES = st.dictionaries(
    st.sampled_from(["event", "action", "media", "mark", "name", "payload", "streamSid", "stream_id", "dtmf"]),
    st.sampled_from(["media", "mark", "clear", "playAudio", "checkpoint", "clearAudio", "notify"])
    | st.dictionaries(st.sampled_from(["payload", "name", "contentType", "sampleRate"]), JSON, max_size=4)
    | JSON,
)


@pytest.mark.slow
@given(st.sampled_from(sorted(VARIANTS)), st.lists(MESSAGES.map(json.dumps) | JSON.map(json.dumps) | st.binary()))
def test_no_message_raises_and_each_makes_an_event(variant: str, messages: list[str | bytes]) -> None:
    caller = make(variant, reply_end_mark="*")
    for message in messages:
        events = caller.receive(message)
        assert events
        for event in events:
            if event.kind is EventKind.MARK:
                assert event.text is not None
                caller.played(event.text)
        caller.pending()
    caller.goodbye()


@given(st.sampled_from(["exotel", "exotel-16k", "vonage", "twilio", "telnyx-alaw"]), st.data())
def test_audio_cut_anywhere_is_the_same_audio(variant: str, data: Any) -> None:
    caller = make(variant)
    spoken = tone(caller.capabilities.input_rate_hz, 60)
    wire = caller.audio_message(spoken)
    octets = wire if variant == "vonage" else base64.b64decode(wire.partition(b'"')[0])
    cuts = data.draw(st.lists(st.integers(0, len(octets)), max_size=8).map(sorted))
    events: list[VoiceEvent] = []
    for begin, end in zip([0, *cuts], [*cuts, len(octets)], strict=True):
        piece = octets[begin:end]
        payload = base64.b64encode(piece).decode()
        message = piece if variant == "vonage" else json.dumps({"event": "media", "media": {"payload": payload}})
        events += caller.receive(message)
    heard = np.frombuffer(b"".join(event.audio or b"" for event in events), "<i2").astype(int)
    assert len(heard) == len(spoken)
    assert {event.kind for event in events} <= {EventKind.AUDIO, EventKind.OTHER}
    assert np.abs(heard - spoken).max() <= (0 if variant.startswith(("exotel", "vonage")) else 512)


@given(st.lists(st.binary(max_size=5)))
def test_pieces_that_end_inside_samples_are_the_same_audio(pieces: list[bytes]) -> None:
    caller = OpenAIRealtimeCaller(CallerOptions())
    heard = b""
    for piece in pieces:
        fields = {"response_id": "a", "item_id": "a", "delta": base64.b64encode(piece).decode()}
        for event in caller.receive(json.dumps({"type": "response.audio.delta", **fields})):
            heard += event.audio or b""
    whole = b"".join(pieces)
    assert heard == whole[: len(whole) // 2 * 2]
