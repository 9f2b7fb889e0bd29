"""A POST to one HTTP server, each on its own connection and within one deadline for the whole exchange.

With the standard library: no pool, so that there is no stale connection to retry; no proxy, no redirect, no cookie. Of
a response, at most as much is read as an OTLP response can hold.
"""

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

_MAX_ANSWER_BYTES: Final = 64 * 1024


class PostAnswer(NamedTuple):
    """The answer to a request; its content may be truncated."""

    status: int
    headers: http.client.HTTPMessage
    content: bytes


class _DeadlineReader(io.RawIOBase):
    """A socket read under one deadline for the whole answer: a peer that sends byte by byte cannot extend it."""

    def __init__(self, sock: socket.socket, left_s: Callable[[], float]) -> None:
        self._sock, self._left_s = sock, left_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - stub name
        self._sock.settimeout(self._left_s())
        return self._sock.recv_into(buffer)


class _DeadlineSocket:
    """The part of a socket that http.client uses, under one deadline."""

    def __init__(self, sock: socket.socket, left_s: Callable[[], float]) -> None:
        self._sock, self._left_s = sock, left_s

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._left_s())
        self._sock.sendall(data)  # one timeout for the whole of it, by definition of sendall

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode  # always "rb"
        return io.BufferedReader(_DeadlineReader(self._sock, self._left_s))

    def close(self) -> None:
        """http.client closes its socket before the body of a last answer is read; the sender closes the real one."""


class HttpPoster:
    """Posts to the server of a base URL, which was checked before; `tls` is used for an https one. Thread-safe."""

    def __init__(
        self, url: str, tls: ssl.SSLContext | None, *, timeout_s: float, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = tls if parts.scheme == "https" else None
        self._base_path = parts.path.rstrip("/")
        self._host_header = parts.netloc.rpartition("@")[2]
        self._timeout_s, self._clock_s = timeout_s, clock_s

    def post(self, path: str, payload: bytes, headers: Mapping[str, str]) -> PostAnswer:
        """Post to a path below the base URL. Raises OSError (TimeoutError after the deadline) and HTTPException."""
        deadline_s = self._clock_s() + self._timeout_s

        def left_s() -> float:
            left = deadline_s - self._clock_s()
            if left <= 0:
                raise TimeoutError("timed out")
            return left

        sock = _connected(self._host, self._port, left_s())
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=self._host)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = http.client.HTTPConnection(self._host, self._port)
            connection.sock = cast(socket.socket, _DeadlineSocket(sock, left_s))
            connection.request("POST", f"{self._base_path}{path}", payload, {**headers, "Host": self._host_header})
            response = connection.getresponse()
            return PostAnswer(response.status, response.headers, response.read(_MAX_ANSWER_BYTES))
        finally:
            sock.close()


def _connected(host: str, port: int, timeout_s: float) -> socket.socket:
    # For an address in numbers nothing has to be looked up, which gevent does in a thread.
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect((host, port))
        except BaseException:  # a greenlet that is killed while it connects must not leave the socket open either
            sock.close()
            raise
        return sock
    return socket.create_connection((host, port), timeout_s)
