"""Where an endpoint is, and how its address is shown: never with credentials or a query, which may be secrets."""

import urllib.parse
from dataclasses import dataclass

from loadtest.errors import UsageError


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect. `tls` is True for wss."""

    host: str
    port: int
    tls: bool


def parse_address(url: str) -> Address:
    """The address of a ws:// or wss:// URL. Raises UsageError with one sentence for anything else."""
    # A malformed address may hold its password anywhere.
    shown = "the address (not shown, it holds credentials)" if "@" in url else repr(public_target(url))
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except ValueError:
        host, parts = None, urllib.parse.urlsplit("")
    if parts.scheme not in ("ws", "wss") or not host:
        raise UsageError(f"{shown} is no WebSocket address: give one such as ws://127.0.0.1:8765/v1/realtime")
    try:
        port = parts.port
    except ValueError:
        raise UsageError(f"{shown} has no valid port: it must be a number from 1 to 65535") from None
    return Address(host, port or (443 if parts.scheme == "wss" else 80), parts.scheme == "wss")


def public_target(url: str) -> str:
    """The target without credentials, query and fragment, as it is stored and shown."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    authority, slash, path = rest.partition("#")[0].partition("?")[0].partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"
