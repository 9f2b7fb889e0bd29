"""Opens a TCP connection, with TLS where the address asks for it, and says why one could not be opened."""

import _socket
import errno
import os
import socket as socket_names
import ssl
from typing import Any, Final

import gevent.socket

from loadtest.engine.connection import Connection, ConnectionCallbacks, OpenedSocket, broken_by
from loadtest.engine.local_limits import Exhausted, LocalLimits, no_thread
from loadtest.engine.tls import TlsClient
from loadtest.engine.transports.base import ConnectionFailed, TransportParts
from loadtest.protocols.address import Address
from loadtest.protocols.failure import Failure, code_of

_LOOKUP_FAULTS: Final = {getattr(socket_names, name): name for name in dir(socket_names) if name.startswith("EAI_")}
# A connection attempt that goes on. Windows has a code of its own; elsewhere EWOULDBLOCK is EAGAIN, which is an error.
_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, getattr(errno, "WSAEWOULDBLOCK", errno.EINPROGRESS)})


def _cause_of(error: OSError | UnicodeError) -> Failure:
    """Return why no TCP connection could be opened."""
    if isinstance(error, socket_names.gaierror):
        return Failure("dns", _LOOKUP_FAULTS.get(error.errno or 0))
    if isinstance(error, UnicodeError):
        return Failure("dns", "bad_name")
    return Failure("timeout", "connect") if isinstance(error, TimeoutError) and not error.errno else broken_by(error)


def dial(parts: TransportParts, address: Address, callbacks: ConnectionCallbacks, timeout_s: float) -> Connection:
    """Open a connection, which is not begun yet. Blocks only the calling greenlet.

    Raises ConnectionFailed, and Exhausted where this machine has no file, port or memory left for it.
    """
    where = f"{address.host}:{address.port}"
    try:
        opened = _connected(parts.limits, address, timeout_s)
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        detail = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConnectionFailed(f"cannot connect to {where}: {detail}", _cause_of(error)) from error
    family = int(opened.family)
    try:
        tls = (parts.tls or TlsClient()).begin(address.host) if address.tls else None
        socket = OpenedSocket(opened.detach(), family, where, tls, other_scheme=address.other_scheme)
        return Connection(parts.connections, socket, callbacks)
    except (OSError, ssl.SSLError, ValueError) as error:
        opened.close()  # unless the connection has taken it over
        exhausted = parts.limits.exhausted(error)
        if exhausted is not None:
            raise exhausted from error
        sentence = f"cannot set up TLS to {where}: {error}"
        raise ConnectionFailed(sentence, Failure("tls", code_of(getattr(error, "reason", None)))) from error


def _connected(limits: LocalLimits, address: Address, timeout_s: float) -> _socket.socket:
    """Return a socket that is connected to one of the addresses of a host, tried in their order.

    Raises Exhausted if this machine prevented an attempt and no other one succeeded, else OSError or UnicodeError.
    """
    where = f"{address.host}:{address.port}"
    try:
        addresses = gevent.socket.getaddrinfo(address.host, address.port, 0, socket_names.SOCK_STREAM)
    except OSError as error:
        prevented = limits.lookup_exhausted(error)
        if prevented is not None:
            raise prevented from error
        raise
    except RuntimeError as error:  # a look-up needs a thread, which Python cannot start
        raise no_thread() from error
    exhausted: Exhausted | None = None
    failed: OSError = OSError("the host name has no address")
    for family, kind, protocol, _, socket_address in addresses:
        try:
            return _attempt(limits, _socket.socket(family, kind, protocol), socket_address, timeout_s)
        except Exhausted as error:
            exhausted = exhausted or error
        except OSError as error:
            failed = error
            exhausted = exhausted or limits.connect_exhausted(error, family, socket_address, where)
    raise exhausted or failed


def _attempt(limits: LocalLimits, opening: _socket.socket, address: Any, timeout_s: float) -> _socket.socket:
    """Connect a socket. Raises OSError and Exhausted; then the socket is closed, whatever ended the attempt."""
    try:
        limits.check_reserve(opening.fileno())
        _connect(opening, address, timeout_s)
    except BaseException:  # a caller that is killed while it connects must not leave the socket open either
        opening.close()
        raise
    return opening


def _connect(opening: _socket.socket, address: Any, timeout_s: float) -> None:
    """Connect a socket. Raises OSError, without an error number if the time is over."""
    opening.setblocking(False)
    code = opening.connect_ex(address)
    if code in _UNDER_WAY:
        gevent.socket.wait_write(opening.fileno(), timeout_s, TimeoutError("timed out"))
        code = opening.getsockopt(socket_names.SOL_SOCKET, socket_names.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
