"""An endpoint that does one wrong thing to every connection: a listening socket, a thread, and bytes."""

import base64
import contextlib
import hashlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY = re.compile(rb"sec-websocket-key: *([^\r]+)", re.IGNORECASE)
Behave = Callable[[socket.socket], None]


@dataclass
class RawEndpoint:
    """Where it listens, and when connections came, on the monotonic clock in s."""

    port: int
    accepted_s: list[float] = field(default_factory=list[float])

    @property
    def url(self) -> str:
        """Its address."""
        return f"ws://127.0.0.1:{self.port}/v1/realtime"


@contextlib.contextmanager
def raw_endpoint(*behave: Behave) -> Generator[RawEndpoint]:
    """The first connection gets the first behavior, and so on; all further ones the last."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = RawEndpoint(listening.getsockname()[1])

        def serve() -> None:
            while True:
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                endpoint.accepted_s.append(time.monotonic())
                how = behave[min(len(endpoint.accepted_s), len(behave)) - 1]
                threading.Thread(target=_one, args=(peer, how), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield endpoint
        listening.shutdown(socket.SHUT_RDWR)


def _one(peer: socket.socket, behave: Behave) -> None:
    with contextlib.closing(peer), contextlib.suppress(OSError):
        behave(peer)


def refusing(status: str, *headers: str) -> Behave:
    """Answers the upgrade with this status line and these headers."""
    lines = "".join(f"{header}\r\n" for header in (*headers, "Content-Length: 2", "Connection: close"))
    return _answering_and_closing(f"HTTP/1.1 {status}\r\n{lines}\r\nno".encode())


def refusing_until_closed(status: str, *headers: str, reset: bool = False) -> Behave:
    """Answers the upgrade with a body of no stated length: it ends with the connection, by its end or by a reset."""
    lines = "".join(f"{header}\r\n" for header in (*headers, "Connection: close"))
    return _answering_and_closing(f"HTTP/1.1 {status}\r\n{lines}\r\nno room".encode(), reset=reset)


def _answering_and_closing(answer: bytes, *, reset: bool = False) -> Behave:
    def behave(peer: socket.socket) -> None:
        _head(peer)
        peer.sendall(answer)
        if reset:
            _reset_on_close(peer)
            return
        peer.shutdown(socket.SHUT_WR)
        _drain(peer)

    return behave


def saying(data: bytes) -> Behave:
    """Answers the connection's first bytes with these, whatever they are."""

    def behave(peer: socket.socket) -> None:
        _head(peer)
        peer.sendall(data)
        _drain(peer)

    return behave


def upgraded(*frames: bytes, then: bytes = b"", after_bytes: int = 0, reset: bool = False, hold: bool = True) -> Behave:
    """Opens the WebSocket, sends these frames, and `then` more when so many bytes have come. After that it waits for
    the caller to go (`hold`), closes, or resets the connection."""

    def behave(peer: socket.socket, after_bytes: int = after_bytes) -> None:
        peer.sendall(accepting(_head(peer)) + b"".join(frames))
        while after_bytes > 0 and (data := peer.recv(65536)):
            after_bytes -= len(data)
        peer.sendall(then)
        if reset:
            _reset_on_close(peer)
            return
        if hold:
            _drain(peer)

    return behave


def accepting(request: bytes) -> bytes:
    """The answer that accepts an upgrade."""
    key = _KEY.search(request)
    accept = base64.b64encode(hashlib.sha1(key[1] + _GUID).digest()) if key else b""  # noqa: S324 - RFC 6455
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    return head + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"


def text(payload: bytes) -> bytes:
    """A text frame."""
    head = (
        struct.pack("!BB", 0x81, len(payload)) if len(payload) < 126 else struct.pack("!BBH", 0x81, 126, len(payload))
    )
    return head + payload


def close(code: int, reason: str = "") -> bytes:
    """A close frame."""
    payload = struct.pack("!H", code) + reason.encode()
    return struct.pack("!BB", 0x88, len(payload)) + payload


READY = text(b'{"type":"session.created","session":{}}') + text(b'{"type":"session.updated","session":{}}')


def _reset_on_close(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _head(peer: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and (data := peer.recv(65536)):
        head += data
    return head


def _drain(peer: socket.socket) -> None:
    while peer.recv(65536):
        pass
