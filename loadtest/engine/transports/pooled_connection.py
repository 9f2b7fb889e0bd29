"""One HTTP connection of a pool: dialed in the background, then one request after the other."""

from typing import Protocol

import gevent
import h11

from loadtest.engine.connection import Connection
from loadtest.engine.local_limits import Exhausted
from loadtest.engine.transports.base import ConnectionFailed, TransportParts
from loadtest.engine.transports.dialing import dial
from loadtest.protocols.address import Address
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpFailed, HttpItem, HttpRequest
from loadtest.protocols.transports.http1 import Http1Client


class PoolCallbacks(Protocol):
    """The pool of a connection."""

    def dialed(self, connection: Connection) -> None:
        """Called with a connection that was opened."""
        ...

    def arrived(self, stamp_perf_ns: int, seen_perf_ns: int, items: list[HttpItem]) -> None:
        """Called with what received data completes."""
        ...

    def again(self, request: HttpRequest) -> None:
        """Called with a request that a kept connection did not take: the peer had closed it."""
        ...

    def freed(self, connection: "PooledConnection") -> None:
        """Called when the connection can carry another request, or never will again."""
        ...

    def failed(self, error: Exception) -> None:
        """Called on an internal error."""
        ...


class PooledConnection:
    """One connection to an origin. It begins with the request that it was made for."""

    def __init__(
        self, parts: TransportParts, address: Address, pool: PoolCallbacks, request: HttpRequest, timeout_s: float
    ) -> None:
        self.address = address
        self.request: HttpRequest | None = request  # the one that is waiting or running
        self.connection: Connection | None = None
        self._parts = parts
        self._pool: PoolCallbacks | None = pool
        self._client = Http1Client()
        self._carried = 0  # responses that were completed
        self._secured = False
        gevent.spawn(self._dial, timeout_s)

    @property
    def is_idle(self) -> bool:
        """Whether a request can be sent at once."""
        return self.request is None and self._secured and self._client.is_open and self.connection is not None

    @property
    def is_over(self) -> bool:
        """Whether it will never carry another request."""
        return self._pool is None or not self._client.is_open

    def _dial(self, timeout_s: float) -> None:
        try:
            connection = dial(self._parts, self.address, self, timeout_s)
        except ConnectionFailed as error:
            self._give_up(str(error), error.failure)
            return
        except Exhausted as error:
            self._give_up(str(error), error.failure)
            return
        if self._pool is None:
            connection.close()
            return
        self.connection = connection
        self._pool.dialed(connection)
        connection.begin()

    def send(self, request: HttpRequest) -> None:
        """Send a request on an idle connection."""
        self.request = request
        try:
            data = self._client.send(request)
        except h11.LocalProtocolError as error:
            self._give_up(f"the request cannot be sent: {error}", Failure("generator", "bad_request"))
            return
        if self.connection is not None:
            self.connection.send(data)

    # Called by the connection.

    def secured(self) -> None:
        """Send the request that the connection was made for."""
        self._secured = True
        if self.request is not None:
            self.send(self.request)

    def receive(self, stamp_perf_ns: int, seen_perf_ns: int, data: bytes) -> None:
        """Pass on what arrived; a complete response frees the connection for the next request first."""
        pool = self._pool
        if pool is None:
            return
        items = self._client.receive(data)
        if self.request is not None and self._client.running is None:
            self.request = None
            self._carried += 1
        if self._client.running is None:
            if not self._client.is_open:
                self.close()
            pool.freed(self)
        if items:
            pool.arrived(stamp_perf_ns, seen_perf_ns, items)

    def settle(self) -> None:
        """Nothing waits for this."""

    def disconnected(self, reason: str, failure: Failure) -> None:
        """Complete what the end completes; a request whose response is not complete fails."""
        pool, request = self._pool, self.request
        if pool is None:
            return
        now_perf_ns = self._parts.connections.clocks.perf_ns()
        items = self._client.receive_eof()
        complete = request is not None and self._client.running is None and self._secured
        retry = request is not None and not complete and bool(self._carried) and not self._client.answered
        self.close()
        pool.freed(self)
        if items:
            pool.arrived(now_perf_ns, now_perf_ns, items)
        if request is None or complete:
            return
        if retry:
            pool.again(request)
        else:
            pool.arrived(now_perf_ns, now_perf_ns, [HttpFailed(request.request_id, reason, failure)])

    def failed(self, error: Exception) -> None:
        """Pass on an internal error."""
        if self._pool is not None:
            self._pool.failed(error)

    def _give_up(self, reason: str, failure: Failure) -> None:
        pool, request = self._pool, self.request
        if pool is None:
            return
        now_perf_ns = self._parts.connections.clocks.perf_ns()
        self.close()
        try:
            pool.freed(self)
            if request is not None:
                pool.arrived(now_perf_ns, now_perf_ns, [HttpFailed(request.request_id, reason, failure)])
        except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
            pool.failed(error)

    def close(self) -> None:
        """Close the connection and let go of it; nothing more is passed on. Idempotent."""
        connection, self.connection, self._pool, self.request = self.connection, None, None, None
        if connection is not None:
            connection.close()
