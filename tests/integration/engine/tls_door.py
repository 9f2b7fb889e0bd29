"""A proxy that ends TLS in front of a server without it, with a certificate made for the test."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Generator

from tests.integration.certificates import Signed


def served(signed: Signed) -> ssl.SSLContext:
    """Return the TLS context of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.cert, signed.key)
    return context


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        writer.close()


@contextlib.contextmanager
def tls_door(to_port: int, context: ssl.SSLContext, port: int = 0) -> Generator[int]:
    """A proxy that ends TLS in front of a port; gives its own port."""
    loop, ready, ports = asyncio.new_event_loop(), threading.Event(), list[int]()
    loop.set_exception_handler(lambda *_: None)  # refused handshakes are what some tests are about
    stop = asyncio.Event()

    async def serve() -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", to_port)
            await asyncio.gather(_carry(reader, inner_writer), _carry(inner_reader, writer))

        async with await asyncio.start_server(connected, "127.0.0.1", port, ssl=context) as server:
            ports.append(server.sockets[0].getsockname()[1])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()
