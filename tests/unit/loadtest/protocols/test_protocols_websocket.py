"""The WebSocket client against the `websockets` library's server side, and against peers that violate the protocol."""

import struct

import pytest
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from loadtest.errors import UsageError
from loadtest.protocols.base import OpenRequest
from loadtest.protocols.transports.masked_frames import FIXED_MASK, FramePreparer, frame
from loadtest.protocols.transports.websocket import Closed, ConnectionState, Item, Opened, Rejected, WebSocketClient

REQUEST = OpenRequest("ws://127.0.0.1:9/v1/realtime?model=m", (("Authorization", "Bearer t"),), ("realtime",))


def opened(limit: int = 2**20) -> tuple[WebSocketClient, ServerProtocol]:
    client, server = WebSocketClient(REQUEST, max_message_bytes=limit), ServerProtocol(subprotocols=["realtime"])  # type: ignore[list-item]  # a NewType of str
    server.receive_data(client.start())
    (request,) = server.events_received()
    server.send_response(server.accept(request))  # type: ignore[arg-type]  # the first event is the request
    (item,) = client.receive(output(server))
    assert isinstance(item, Opened)
    assert server.subprotocol == "realtime"
    return client, server


def output(server: ServerProtocol) -> bytes:
    return b"".join(server.data_to_send())


def head(first: int, length: int) -> bytes:
    return bytes([first, length]) if length < 126 else bytes([first, 127]) + struct.pack("!Q", length)


def closed(items: list[Item]) -> Closed:
    assert items
    item = items[-1]
    assert isinstance(item, Closed), item
    return item


class TestUpgrade:
    def test_request(self) -> None:
        client = WebSocketClient(REQUEST)
        assert client.state is ConnectionState.CONNECTING
        text = client.start().decode()
        assert text.startswith("GET /v1/realtime?model=m HTTP/1.1\r\nHost: 127.0.0.1:9\r\n")
        assert "\r\nAuthorization: Bearer t\r\n" in text
        assert "\r\nSec-WebSocket-Protocol: realtime\r\n" in text
        assert "Extensions" not in text  # permessage-deflate is not offered

    def test_repeated_headers_are_sent_and_keep_handshake_headers(self) -> None:
        request = OpenRequest("ws://u:p@h/", (("Authorization", "Bearer t"), ("X-A", "1"), ("X-A", "2")))
        text = WebSocketClient(request).start().decode()
        assert text.count("Authorization") == 1
        assert "X-A: 1\r\nX-A: 2\r\n" in text

    @pytest.mark.parametrize("url", ["http://h/", "ws://", "h:80", "ws://h/#f", "ws://h:99999/", ""])
    def test_bad_urls(self, url: str) -> None:
        with pytest.raises(UsageError, match="is not a WebSocket URL"):
            WebSocketClient(OpenRequest(url))

    @pytest.mark.parametrize(
        ("name", "value"),
        [("Upgrade", "x"), ("sec-websocket-key", "x"), ("a b", "x"), ("a", "x\r\nb: c"), ("", "x"), ("a", "\u00e9")],
    )
    def test_bad_headers(self, name: str, value: str) -> None:
        with pytest.raises(UsageError):
            WebSocketClient(OpenRequest("ws://h/", ((name, value),)))

    @pytest.mark.parametrize(
        ("answer", "status", "reason"),
        [
            (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 7\r\n\r\nno key!", 403, "Forbidden"),
            (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", 401, "Unauthorized"),
            (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, "missing Connection header"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", None, "did not receive a valid HTTP response"),
            (b"HTTP/1.1 200 OK\r\nbroken\r\n\r\n", None, "did not receive a valid HTTP response"),
            (b"\x00" * 10_000, None, "not HTTP: read 10000 bytes"),
        ],
    )
    def test_refusals(self, answer: bytes, status: int | None, reason: str) -> None:
        client = WebSocketClient(REQUEST)
        client.start()
        items = client.receive(answer) + client.receive_eof()
        (item,) = items
        assert isinstance(item, Rejected)
        assert item.status == status
        assert reason in item.reason
        assert client.state is ConnectionState.CLOSED
        assert client.receive(b"more") == []

    def test_the_body_of_a_refusal_is_excerpted(self) -> None:
        client = WebSocketClient(REQUEST)
        client.start()
        body = "é".encode() * 6000
        (item,) = client.receive(b"HTTP/1.1 500 Oops\r\nContent-Length: 12000\r\n\r\n" + body)
        assert isinstance(item, Rejected)
        assert item.body_excerpt == "é" * 4096

    def test_an_end_before_the_answer(self) -> None:
        client = WebSocketClient(REQUEST)
        client.start()
        (item,) = client.receive_eof()
        assert isinstance(item, Rejected)
        assert "connection closed while reading HTTP status line" in item.reason
        assert client.receive_eof() == []

    def test_a_message_in_the_same_read_as_the_answer(self) -> None:
        client, server = WebSocketClient(OpenRequest("ws://h/")), ServerProtocol()
        server.receive_data(client.start())
        (request,) = server.events_received()
        server.send_response(server.accept(request))  # type: ignore[arg-type]  # the first event is the request
        server.send_text(b"first")
        items = client.receive(output(server))
        assert isinstance(items[0], Opened)
        assert items[1:] == ["first"]


class TestMessages:
    @pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536, 200_000])
    def test_both_ways_at_every_length_form(self, length: int) -> None:
        client, server = opened()
        server.send_text(b"x" * length)
        server.send_binary(b"\x80" * length)
        assert client.receive(output(server)) == ["x" * length, b"\x80" * length]
        server.receive_data(client.send("y" * length) + client.send(b"\x01" * length))
        assert [(e.opcode, bytes(e.data)) for e in server.events_received()] == [  # type: ignore[union-attr]  # frames
            (Opcode.TEXT, b"y" * length),
            (Opcode.BINARY, b"\x01" * length),
        ]

    @pytest.mark.parametrize("length", [0, 1, 3, 125, 126, 65_535, 65_536, 200_001])
    @pytest.mark.parametrize("text", [True, False])
    def test_prepared_frames_are_read_by_the_librarys_server(self, length: int, text: bool) -> None:
        _, server = opened()
        payload = bytes(32 + n % 90 for n in range(length))
        server.receive_data(frame(payload, mask=b"\x01\x02\x03\x04", text=text))
        (event,) = server.events_received()
        assert isinstance(event, Frame)
        assert (event.opcode, event.fin) == (Opcode.TEXT if text else Opcode.BINARY, True)
        assert bytes(event.data) == payload

    def test_prepared_frames_do_not_disturb_the_connection(self) -> None:
        client, server = opened()
        preparer = FramePreparer()
        server.send_ping(b"p")
        client.receive(output(server))
        prepared = preparer.frame("été", text=True)
        server.receive_data(client.send("a") + prepared + client.take_output() + prepared + client.close())
        got = [(event.opcode, bytes(event.data)) for event in server.events_received()]  # type: ignore[union-attr]  # frames
        texts = [data.decode() for opcode, data in got if opcode is Opcode.TEXT]
        assert texts == ["a", "été", "été"]
        assert (Opcode.PONG, b"p") in got
        assert got[-1][0] is Opcode.CLOSE

    def test_masks(self) -> None:
        assert FramePreparer().frame("a", text=True)[2:6] == FIXED_MASK
        first, second = FramePreparer("random", seed=1), FramePreparer("random", seed=1)
        frames = [first.frame("hello", text=True) for _ in range(3)]
        assert frames == [second.frame("hello", text=True) for _ in range(3)]
        assert len({data[2:6] for data in frames}) == 3
        with pytest.raises(ValueError, match="unknown mask mode 'none'"):
            FramePreparer("none")
        with pytest.raises(ValueError, match="4 bytes, not 3"):
            frame("a", mask=b"abc", text=True)

    def test_fragments_with_a_ping_between(self) -> None:
        client, server = opened()
        server.send_text("ü".encode()[:1], fin=False)
        server.send_ping(b"!")
        server.send_continuation(b"", fin=False)
        server.send_continuation("ü".encode()[1:], fin=True)
        server.send_text(b"next")
        assert client.receive(output(server)) == ["ü", "next"]
        server.receive_data(client.take_output())
        (pong,) = server.events_received()
        assert isinstance(pong, Frame)
        assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"!")

    def test_nothing_can_be_sent_unless_open(self) -> None:
        client = WebSocketClient(REQUEST)
        assert client.send("a") == b""
        assert client.close() == b""


class TestEnd:
    def test_the_peer_closes(self) -> None:
        client, server = opened()
        server.send_text(b"last")
        server.send_close(1008, "enough")
        assert client.receive(output(server)) == ["last", Closed(1008, "enough", clean=True)]
        assert client.state is ConnectionState.CLOSED
        server.receive_data(client.take_output())
        assert server.close_rcvd is not None
        assert server.close_rcvd.code == 1008
        assert client.receive_eof() == []
        assert client.send("a") == b""

    def test_after_our_close_messages_in_flight_are_still_received(self) -> None:
        client, server = opened()
        server.send_text(b"in flight")
        in_flight = output(server)
        server.receive_data(client.close(1000, "é" * 100))
        assert client.state is ConnectionState.CLOSING
        assert client.receive(in_flight) == ["in flight"]
        (item,) = client.receive(output(server))
        assert item == Closed(1000, "é" * 61, clean=True)

    def test_a_close_without_a_code(self) -> None:
        client, server = opened()
        server.send_close()
        assert client.receive(output(server)) == [Closed(1005, "", clean=True)]

    @pytest.mark.parametrize("tail", [b"", b"\x81", b"\x81\x05ab", b"\x01\x01a"])
    def test_the_stream_ends_without_a_close(self, tail: bytes) -> None:
        client, _ = opened()
        items = client.receive(tail) + client.receive_eof()
        (item,) = items
        assert closed(items).code == 1006
        assert isinstance(item, Closed)
        assert "without a closing handshake" in item.reason
        assert not item.clean

    @pytest.mark.parametrize(
        ("data", "code", "reason"),
        [
            (b"\x83\x00", 1002, "invalid opcode"),
            (b"\x81\x81\x00\x00\x00\x00a", 1002, "incorrect masking"),
            (b"\xc1\x01a", 1002, "reserved bits must be 0"),
            (b"\x09\x00", 1002, "fragmented control frame"),
            (head(0x89, 126) + b"a" * 126, 1002, "control frame too long"),
            (b"\x80\x01a", 1002, "unexpected continuation frame"),
            (b"\x01\x01a\x81\x01b", 1002, "expected a continuation frame"),
            (b"\x88\x01a", 1002, "close frame too short"),
            (b"\x88\x02\x00\x01", 1002, "invalid status code"),
            (b"\x81\x02\xff\xfe", 1007, "not UTF-8 (invalid start byte at byte 0)"),
            (b"\x01\x01\xc3\x80\x01a", 1007, "not UTF-8"),
            (head(0x81, 2**20 + 1), 1009, "its own limit is 1 MiB"),
            (head(0x82, 2**62), 1009, "its own limit is 1 MiB"),
            (head(0x01, 2**20) + b"a" * 2**20 + b"\x80\x01a", 1009, "its own limit is 1 MiB"),
        ],
    )
    def test_a_peer_that_violates_the_protocol(self, data: bytes, code: int, reason: str) -> None:
        client, server = opened()
        server.send_text(b"before")
        items = client.receive(output(server) + data + b"\x81\x05after")
        assert items[0] == "before"
        assert len(items) == 2
        item = closed(items)
        assert item.code == code
        assert reason in item.reason
        assert not item.clean
        server.receive_data(client.take_output())
        assert server.close_rcvd is not None
        assert server.close_rcvd.code == code
        assert client.receive(b"\x81\x00") == client.receive_eof() == []

    def test_a_message_at_the_limit_passes(self) -> None:
        client, server = opened(limit=1000)
        server.send_text(b"a" * 1000)
        assert client.receive(output(server)) == ["a" * 1000]
        server.send_text(b"a" * 1001)
        assert closed(client.receive(output(server))).code == 1009
