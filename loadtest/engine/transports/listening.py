"""Waits for an endpoint that connects to the caller, and says why none did."""

import contextlib
import socket as socket_names

import gevent.socket

from loadtest.engine.connection import Connection, ConnectionCallbacks, OpenedSocket
from loadtest.engine.transports.base import ConnectionFailed, NobodyConnected, TransportParts
from loadtest.protocols.address import Address
from loadtest.protocols.failure import Failure
from telemetry.model.addresses import host_and_port


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
