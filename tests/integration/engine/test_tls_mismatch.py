"""A caller who speaks TLS to a plain port, and one who does not to a TLS port: detected at once if the server answers
anything, and with the same hint where it never does. The servers are asyncio's own."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from telemetry.model.turns import Turn
from tests.integration.calling import Callers
from tests.integration.certificates import Signed, authority

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SHORT_S, LONG_S = 0.3, 60.0  # the second is longer than a test may take


def _ignored(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    pass


@contextlib.contextmanager
def _server(serve: Serve, context: ssl.SSLContext | None = None) -> Generator[int]:
    """An asyncio server in a thread; gives its port."""
    ready, started = threading.Event(), list[tuple[int, Callable[[], object]]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.transport.abort()

    async def run() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        loop.set_exception_handler(_ignored)  # handshakes that fail are what this is about
        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
        started.append((server.sockets[0].getsockname()[1], lambda: loop.call_soon_threadsafe(stop.set)))
        ready.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(60)
    port, end = started[0]
    try:
        yield port
    finally:
        end()
        thread.join(60)


def _answering(*pieces: bytes) -> Serve:
    """Answers the first bytes, whatever they are, piece by piece, and waits for the caller to go."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read(65_536)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        while await reader.read(65_536):
            pass

    return serve


async def _leaving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(65_536)
    writer.write_eof()
    while await reader.read(65_536):
        pass


async def _resetting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(65_536)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets


def _turn(scheme: str, port: int, ready_s: float = LONG_S) -> Turn:
    ((turn,),) = Callers(f"{scheme}://127.0.0.1:{port}/v1/realtime", 1, ready_s=ready_s).call()
    assert turn.outcome == "error"
    assert turn.connect_ns is None
    return turn


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return authority(tmp_path_factory.mktemp("tls")).sign("localhost")


def _context(signed: Signed, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = version
    context.load_cert_chain(signed.cert, signed.key)
    return context


@pytest.mark.parametrize(
    "pieces",
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",),
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html>", b"</html>"),
        (b"?\n",),  # fewer bytes than the head of a TLS record
        (b"\x81\x02{}",),
    ],
    ids=["http-400", "http-400-body", "short", "websocket-frame"],
)
def test_tls_to_a_plain_port_that_answers_is_over_at_once(pieces: tuple[bytes, ...]) -> None:
    with _server(_answering(*pieces)) as port:
        turn = _turn("wss", port)
    assert (turn.failure_kind, turn.failure_code) == ("tls", "not_tls")
    assert turn.outcome_reason == f"the server at 127.0.0.1:{port} does not speak TLS: use ws://"


def test_tls_to_silent_plain_port_ends_with_hint() -> None:
    with _server(_answering()) as port:
        turn = _turn("wss", port, SHORT_S)
    assert (turn.failure_kind, turn.failure_code) == ("timeout", "tls_handshake")
    assert turn.outcome_reason == (
        "the endpoint accepted the connection but did not finish the TLS handshake within 0.3 s; "
        f"if the server at 127.0.0.1:{port} does not speak TLS, use ws://"
    )


@pytest.mark.parametrize(("serve", "code"), [(_leaving, "EOF"), (_resetting, "ECONNRESET")], ids=["eof", "reset"])
def test_tls_to_a_plain_port_that_hangs_up_names_ws(serve: Serve, code: str) -> None:
    with _server(serve) as port:
        turn = _turn("wss", port)
    assert (turn.failure_kind, turn.failure_code) == ("tls", code)
    assert turn.outcome_reason is not None
    assert turn.outcome_reason.endswith(
        f"before it sent anything; if the server at 127.0.0.1:{port} does not speak TLS, use ws://"
    )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_plain_to_a_tls_server_names_wss(signed: Signed, version: ssl.TLSVersion) -> None:
    with _server(_answering(), _context(signed, version)) as port:
        turn = _turn("ws", port)
    # OpenSSL knows a plain HTTP request and closes without an alert.
    assert (turn.failure_kind, turn.failure_code) == ("tcp", "EOF")
    assert turn.outcome_reason is not None
    assert turn.outcome_reason.endswith(
        f"before it sent anything; if the server at 127.0.0.1:{port} speaks TLS, use wss://"
    )


@pytest.mark.parametrize("pieces", [(b"\x15\x03\x01\x00\x02\x02\x46",), (b"\x15\x03\x03\x00\x02\x02\x0a",)])
def test_a_tls_alert_in_answer_to_plain_text_names_wss(pieces: tuple[bytes, ...]) -> None:
    with _server(_answering(*pieces)) as port:
        turn = _turn("ws", port)
    assert (turn.failure_kind, turn.failure_code) == ("tls", "tls_required")
    assert turn.outcome_reason == f"the server at 127.0.0.1:{port} speaks TLS: use wss://"


def test_plain_to_a_port_that_says_nothing_ends_with_the_hint() -> None:
    with _server(_answering()) as port:
        turn = _turn("ws", port, SHORT_S)
    assert (turn.failure_kind, turn.failure_code) == ("timeout", "session")
    assert turn.outcome_reason == (
        "the endpoint accepted the connection but did not open a session within 0.3 s; "
        f"if the server at 127.0.0.1:{port} speaks TLS, use wss://"
    )
