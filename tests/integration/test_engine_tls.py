"""The same callers over wss: verified by default, stamped by the kernel all the same."""

import asyncio
import contextlib
import ssl
import subprocess
import threading
import urllib.parse
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.integration.calling import Callers, assistant


def _certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        writer.close()


@contextlib.contextmanager
def _terminated(port: int, context: ssl.SSLContext) -> Generator[int]:
    """A proxy that ends TLS in front of a port; gives its own port."""
    loop, ready, found = asyncio.new_event_loop(), threading.Event(), list[int]()
    stop = asyncio.Event()

    async def serve() -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_carry(reader, inner_writer), _carry(inner_reader, writer))

        async with await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context) as server:
            found.append(server.sockets[0].getsockname()[1])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = _certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with assistant(folder) as url:
        plain = urllib.parse.urlsplit(url)
        assert plain.port is not None
        with _terminated(plain.port, context) as port:
            yield f"wss://localhost:{port}{plain.path}", certificate


def test_a_call_over_tls_with_an_own_authority(secured: tuple[str, Path]) -> None:
    url, authority = secured
    for turns in Callers(url, 2, turns_per_call=2, ca_file=str(authority)).call():
        assert [turn.outcome for turn in turns] == ["ok", "ok"], [turn.outcome_reason for turn in turns]
        assert turns[0].receive_stamp == "kernel"


def test_an_endpoint_that_cannot_be_verified_is_refused(secured: tuple[str, Path]) -> None:
    url, _ = secured
    ((turn,),) = Callers(url, 1).call()
    assert turn.outcome == "error"
    assert "certificate" in (turn.outcome_reason or "").lower()
