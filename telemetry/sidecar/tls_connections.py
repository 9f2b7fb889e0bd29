"""HTTP connections over TLS: a connection counts, and has a deadline, from its first octet on.

asyncio's own server would count a connection when its handshake is over, and grant a minute for it.
"""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Final, cast

from telemetry.sidecar.http_connections import HttpConnection, HttpConnections

# A record of TLS and its frame: what is decrypted is parsed at once, so it must not be more.
_READ_BYTES: Final = (16 << 10) + 512


class TlsConnection(SSLProtocol):
    """The TLS layer of one connection, from its handshake to its end."""

    max_size = _READ_BYTES

    def __init__(self, context: ssl.SSLContext, application: HttpConnection, known: HttpConnections) -> None:
        limits = known.limits
        super().__init__(
            asyncio.get_running_loop(),
            application,
            context,
            cast(asyncio.Future[None], None),  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=cast(int, limits.header_s),
            ssl_shutdown_timeout=limits.linger_s,
        )
        self._known = known
        application.handshake = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection and begin its handshake, or close it at once."""
        self.transport = cast(asyncio.Transport, transport)
        if self._known.admit(self):
            self._known.waits(self, True)
            super().connection_made(transport)
        else:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a connection that ended before its handshake did."""
        self._known.forget(self)
        super().connection_lost(exc)
