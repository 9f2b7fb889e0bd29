"""Opens a TCP connection, with TLS where the address asks for it, and says why one could not be opened."""

import socket as socket_names
import ssl
from typing import Final

import gevent.socket

from loadtest.engine.connection import Connection, ConnectionCallbacks, OpenedSocket, broken_by
from loadtest.engine.tls import TlsClient
from loadtest.engine.transports.base import ConnectionFailed, TransportParts
from loadtest.errors import InstrumentError
from loadtest.protocols.address import Address
from loadtest.protocols.failure import Failure, code_of
from telemetry.model.host_names import host_and_port

_LOOKUP_FAULTS: Final = {getattr(socket_names, name): name for name in dir(socket_names) if name.startswith("EAI_")}


def _cause_of(error: OSError | UnicodeError) -> Failure:
    """Return why no TCP connection could be opened."""
    if isinstance(error, socket_names.gaierror):
        return Failure("dns", _LOOKUP_FAULTS.get(error.errno or 0))
    if isinstance(error, UnicodeError):
        return Failure("dns", "bad_name")
    return Failure("timeout", "connect") if isinstance(error, TimeoutError) and not error.errno else broken_by(error)


def dial(parts: TransportParts, address: Address, callbacks: ConnectionCallbacks, timeout_s: float) -> Connection:
    """Open a connection, which is not begun yet. Blocks only the calling greenlet.

    Raises ConnectionFailed, and InstrumentError where this machine has no descriptor left.
    """
    where = host_and_port(address.host, address.port)
    try:
        opened = gevent.socket.create_connection((address.host, address.port), timeout=timeout_s)
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        shortage = parts.descriptors.shortage(error) if isinstance(error, OSError) else None
        if shortage is not None:
            raise InstrumentError(shortage) from error
        detail = getattr(error, "strerror", None) or str(error) or type(error).__name__
        sentence = f"cannot connect to {where}: {detail}"
        raise ConnectionFailed(sentence, _cause_of(error)) from error
    family = int(opened.family)
    descriptor = opened.detach()
    try:
        tls = (parts.tls or TlsClient()).begin(address.host) if address.tls else None
        socket = OpenedSocket(descriptor, family, where, tls, other_scheme=address.other_scheme)
        return Connection(parts.connections, socket, callbacks)
    except (OSError, ssl.SSLError, ValueError) as error:
        sentence = f"cannot set up TLS to {where}: {error}"
        raise ConnectionFailed(sentence, Failure("tls", code_of(getattr(error, "reason", None)))) from error
