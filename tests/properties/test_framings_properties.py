"""Frames of every transport: any cut gives the same messages; other libraries read heads and counters back."""

import base64
import itertools
import json
from array import array
from typing import Any

import h11
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from loadtest.audio.pcm import Pcm16
from loadtest.protocols.base import CallerOptions, CallerProtocol
from loadtest.protocols.declared.caller import DeclaredCaller
from loadtest.protocols.declared.spec import spec_of
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpHead, HttpItem, HttpRequest
from loadtest.protocols.transports.byte_streams import EventLines, LengthPrefixed
from loadtest.protocols.transports.framing import Framing, Item
from loadtest.protocols.transports.http1 import Http1Client
from loadtest.protocols.transports.masked_frames import (
    MASKS,
    FramePreparer,
    headed_frames,
    joining,
    masked_rest,
    preparation,
)
from tests.unit.loadtest.protocols.telephony.calls import make

cuts = st.lists(st.integers(0, 3000), max_size=12)
LIMIT = 2000


def pieces(stream: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(min(place, len(stream)) for place in places), len(stream)]
    return [stream[begin:end] for begin, end in itertools.pairwise(bounds)]


def received(framing: Framing, stream: bytes, places: list[int]) -> list[Item]:
    items: list[Item] = []
    for piece in pieces(stream, places):
        items += framing.receive(piece)
    return items


def event(data: bytes | None, payload: bytes | None) -> bytes:
    """An event as the protocol's description says, written without our code."""
    line: dict[str, object] = {"type": "audio-chunk", "version": "1.0"}
    line |= {} if data is None else {"data_length": len(data)}
    line |= {} if payload is None else {"payload_length": len(payload)}
    return json.dumps(line).encode() + b"\n" + (data or b"") + (payload or b"")


bodies = st.one_of(st.none(), st.binary(max_size=300), st.just(b"\n{}\n"))


@given(st.lists(st.tuples(bodies, bodies), max_size=5), cuts)
def test_event_lines(events: list[tuple[bytes | None, bytes | None]], places: list[int]) -> None:
    whole = [event(data, payload) for data, payload in events]
    assert received(EventLines(), b"".join(whole), places) == whole


@pytest.mark.slow
@given(st.lists(st.binary(max_size=300), max_size=6), cuts)
def test_length_prefixes(messages: list[bytes], places: list[int]) -> None:
    stream = b"".join(len(message).to_bytes(4, "big") + message for message in messages)
    assert received(LengthPrefixed(), stream, places) == messages


@given(st.binary(max_size=400), cuts)
def test_no_bytes_make_a_framing_raise(stream: bytes, places: list[int]) -> None:
    for kind in (EventLines, LengthPrefixed):
        framing = kind(max_message_bytes=LIMIT)
        assert received(framing, stream, places) == received(kind(max_message_bytes=LIMIT), stream, [])
        client = Http1Client()
        client.send(HttpRequest("r", "GET", "http://h/"))
        for piece in pieces(stream, places):
            client.receive(piece)
        client.receive_eof()


def response(chunks: list[bytes], how: str, status: int) -> bytes:
    """A response, written by the library's server side."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    server.next_event(), server.next_event()
    headers = [("X-Request-Id", "7")]
    headers += [("Content-Length", str(sum(map(len, chunks))))] if how == "length" else []
    headers += [("Connection", "close")] if how == "close" else []
    out = server.send(h11.Response(status_code=status, headers=headers)) or b""
    for chunk in chunks:
        out += server.send(h11.Data(data=chunk)) or b""
    return out + (server.send(h11.EndOfMessage()) or b"")


@given(
    st.lists(st.binary(min_size=1, max_size=200), max_size=5),
    st.sampled_from(["length", "chunked"]),
    st.sampled_from([200, 404, 503]),
    cuts,
)
def test_responses(chunks: list[bytes], how: str, status: int, places: list[int]) -> None:
    client = Http1Client()
    for number in ("one", "two"):  # over the same connection
        client.send(HttpRequest(number, "POST", "http://h/x?y=1", body=b"body"))
        items: list[HttpItem] = []
        for piece in pieces(response(chunks, how, status), places):
            items += client.receive(piece)
        assert isinstance(items[0], HttpHead)
        assert (items[0].status, dict(items[0].headers)["x-request-id"]) == (status, "7")
        assert items[-1] == HttpEnd(number)
        middle = [item.data for item in items[1:-1] if isinstance(item, HttpData)]
        assert (len(middle), b"".join(middle)) == (len(items) - 2, b"".join(chunks))
        assert client.is_open
        assert client.running is None


heads = st.one_of(st.binary(max_size=140), st.integers(0, 70_000).map(lambda size: b"h" * size))


def decoded(stream: bytes, cuts: list[int]) -> list[tuple[Opcode, bytes]]:
    """Return what the library reads from a stream that arrives in pieces."""
    server = ServerProtocol(max_size=None)
    server.state = State.OPEN
    server.parser = server.parse()
    next(server.parser)
    start = 0
    for cut in [*sorted(min(cut, len(stream)) for cut in cuts), len(stream)]:
        server.receive_data(stream[start:cut])
        start = cut
    assert server.parser_exc is None
    frames = [event for event in server.events_received() if isinstance(event, Frame)]
    return [(event.opcode, bytes(event.data)) for event in frames]


@pytest.mark.slow
@given(
    st.lists(heads, max_size=6),
    st.binary(max_size=700),
    st.booleans(),
    st.sampled_from(MASKS),
    st.lists(st.integers(0)),
)
def test_one_rest_joins_every_head(
    beginnings: list[bytes], payload: bytes, text: bool, mask_mode: str, cuts: list[int]
) -> None:
    rest = FramePreparer(mask_mode, seed=7).rest(payload)
    stream = b"".join(headed_frames(mask_mode, text=text)(head, rest) for head in beginnings)
    opcode = Opcode.TEXT if text else Opcode.BINARY
    assert decoded(stream, cuts) == [(opcode, head + payload) for head in beginnings]


@given(st.binary(min_size=4, max_size=4), st.binary(max_size=200), st.binary(max_size=700))
def test_any_mask_masks_head_and_rest(mask: bytes, head: bytes, payload: bytes) -> None:
    frame = headed_frames("random", text=False)(head, masked_rest(payload, mask=mask))
    assert decoded(frame, []) == [(Opcode.BINARY, head + payload)]


PCM = np.arange(-160, 160, dtype=np.int16)
counts = st.one_of(st.integers(0, 10_000), st.integers(0, 2**40))
TELEPHONY = ("twilio", "telnyx", "telnyx-alaw", "plivo", "exotel", "exotel-16k")
# Texts around a place that could be mistaken for a part of a number, of a format or of a place.
texts = st.lists(
    st.sampled_from(["{sequence}", "{timestamp_ms}", "%", "%d", "1", "10", "0", "7", '"', "\\", "ä", "{", "}", " "]),
    max_size=6,
).map("".join)
templates = st.recursive(
    texts | st.just("{sequence}") | st.just("{timestamp_ms}") | st.integers(-(2**53), 2**53) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab%{}1", max_size=3), inner, max_size=3),
    max_leaves=6,
)


def on_the_wire(caller: CallerProtocol, pcm: Pcm16, mask_mode: str) -> Any:
    """The JSON of the next frame, prepared, joined and masked as in a call."""
    prepare, join = preparation(caller.capabilities, mask_mode, 5), joining(caller.capabilities, mask_mode)
    assert join is not None
    ((opcode, payload),) = decoded(join(caller.audio_head() or b"", prepare(caller.audio_message(pcm))), [])
    assert opcode is Opcode.TEXT
    return json.loads(payload)


def expected(template: Any, sequence: int, at_ms: int, audio: str) -> Any:
    """A template filled in, by replacing texts alone."""
    if isinstance(template, str):
        whole = {"{sequence}": sequence, "{timestamp_ms}": at_ms, "{audio}": audio}
        if template in whole:
            return whole[template]
        return template.replace("{sequence}", str(sequence)).replace("{timestamp_ms}", str(at_ms))
    if isinstance(template, dict):
        return {key: expected(value, sequence, at_ms, audio) for key, value in template.items()}
    if isinstance(template, list):
        return [expected(value, sequence, at_ms, audio) for value in template]
    return template


@given(template=templates, before=counts, mask_mode=st.sampled_from(MASKS))
def test_any_declared_template_counts(template: Any, before: int, mask_mode: str) -> None:
    frame = {"head": template, "n": "{sequence}", "data": "{audio}"}
    spec = spec_of({"name": "x", "audio": {"frame": frame}, "reply": {"end": "silence"}, "events": []}, "x")
    caller = DeclaredCaller(CallerOptions(), spec)
    head = caller._frames.head
    assert head is not None
    for at, step in enumerate(head.steps):
        head.numbers[at] = before + 1 if step == 1 else 20 * before
    audio = base64.b64encode(PCM.astype("<i2").tobytes()).decode()
    for number in (before, before + 1):
        assert on_the_wire(caller, PCM, mask_mode) == expected(frame, number + 1, number * 20, audio)


@pytest.mark.parametrize("variant", TELEPHONY)
@given(others=counts, before=counts, mask_mode=st.sampled_from(MASKS))
def test_telephone_frames_count(variant: str, others: int, before: int, mask_mode: str) -> None:
    caller = make(variant)
    frame_ms = 100 if variant.startswith("exotel") else 20
    assert caller._head is not None
    caller._head.numbers[:] = array("q", (before + others + 1, before + 1, before * frame_ms))
    for number in (before, before + 1):
        message = on_the_wire(caller, PCM, mask_mode)
        sequence = message.get("sequenceNumber", message.get("sequence_number"))
        assert (message["event"], int(sequence)) == ("media", number + others + 1)
        assert int(message["media"]["chunk"]) == number + 1
        assert int(message["media"]["timestamp"]) == number * frame_ms
        octets = base64.b64decode(message["media"]["payload"], validate=True)
        assert len(octets) == len(PCM) * (2 if variant.startswith("exotel") else 1)
