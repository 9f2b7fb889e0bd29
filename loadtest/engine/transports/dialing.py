"""Opens the TCP connection of a call and says why it could not be opened.

`dial` connects to the endpoint, with TLS where the address asks for it; `await_dial_in` waits for an endpoint that
connects to the caller.
"""

import _socket
import contextlib
import errno
import os
import socket as socket_names
import ssl
from typing import Any, Final

import gevent.socket

from loadtest.engine.connection import Connection, ConnectionCallbacks, OpenedSocket, broken_by
from loadtest.engine.local_limits import Exhausted, LocalLimits, no_thread
from loadtest.engine.tls import TlsClient
from loadtest.engine.transports.base import ConnectionFailed, NobodyConnected, TransportParts
from loadtest.protocols.address import Address
from loadtest.protocols.failure import Failure, code_of
from telemetry.model.addresses import host_and_port

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


def await_dial_in(
    parts: TransportParts,
    address: Address,
    callbacks: ConnectionCallbacks,
    timeout_s: float,
    *,
    wait_s: float | None = None,
) -> Connection:
    """Listen until one endpoint has connected, and no longer. Blocks only the calling greenlet.

    It is waited for `wait_s`, else `timeout_s`. One caller at a time can wait on an address. Raises ConnectionFailed,
    and Exhausted where this machine has no file, port or memory left for it.
    """
    where = host_and_port(address.host, address.port)
    wait_s = timeout_s if wait_s is None else wait_s
    try:
        with contextlib.closing(_listener(address)) as listener:
            listener.settimeout(wait_s)
            opened, _ = listener.accept()
    except TimeoutError as error:
        raise NobodyConnected(where, wait_s) from error
    except OSError as error:
        exhausted = parts.limits.exhausted(error)
        if exhausted is not None:
            raise exhausted from error
        sentence = f"cannot listen on {where}: {error.strerror or error}; one caller at a time can wait there"
        # Nobody else has had a part in it: the address is taken on this machine, or belongs to another.
        raise ConnectionFailed(sentence, Failure("generator", "cannot_listen")) from error
    family, descriptor = int(opened.family), opened.detach()
    return Connection(parts.connections, OpenedSocket(descriptor, family, where, None, accepted=True), callbacks)


def _listener(address: Address) -> gevent.socket.socket:
    """Return a socket that listens. Raises OSError."""
    family = socket_names.AF_INET6 if ":" in address.host else socket_names.AF_INET
    listener = gevent.socket.socket(family, socket_names.SOCK_STREAM)
    try:
        # The connections of earlier calls, which have ended, do not keep the address.
        listener.setsockopt(socket_names.SOL_SOCKET, socket_names.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(1)
    except OSError:
        listener.close()
        raise
    return listener
