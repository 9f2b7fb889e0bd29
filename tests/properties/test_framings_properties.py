"""However the bytes of a stream are cut, the same messages come out, and nothing that a peer sends raises."""

import itertools
import json

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.protocols.http_items import HttpData, HttpEnd, HttpHead, HttpItem, HttpRequest
from loadtest.protocols.transports.byte_streams import EventLines, LengthPrefixed
from loadtest.protocols.transports.framing import Framing, Item
from loadtest.protocols.transports.http1 import Http1Client

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
    for make in (EventLines, LengthPrefixed):
        framing = make(max_message_bytes=LIMIT)
        assert received(framing, stream, places) == received(make(max_message_bytes=LIMIT), stream, [])
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
