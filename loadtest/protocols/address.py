"""An endpoint's address, and how it is shown: never with credentials or the query, which may contain secrets."""

import urllib.parse
from dataclasses import dataclass

from loadtest.errors import UsageError
from telemetry.model.foreign_text import has_control_characters


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect. `tls` is True for wss."""

    host: str
    port: int
    tls: bool


def parse_address(url: str) -> Address:
    """Parse a ws:// or wss:// URL. Raises UsageError with one sentence for anything else."""
    # A malformed address may contain its password anywhere.
    shown = "the address (not shown because it contains credentials)" if "@" in url else repr(public_target(url))
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except ValueError:
        host, parts = None, urllib.parse.urlsplit("")
    if parts.scheme not in ("ws", "wss") or not host:
        raise UsageError(f"{shown} is not a WebSocket address; give one such as ws://127.0.0.1:8765/v1/realtime")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise UsageError(f"{shown} has no valid port; it must be a number from 1 to 65535")
    if fault := _fault(url, parts):
        raise UsageError(f"{shown} {fault}")
    return Address(host, port or (443 if parts.scheme == "wss" else 80), parts.scheme == "wss")


def _fault(url: str, parts: urllib.parse.SplitResult) -> str | None:
    """Return what is wrong with a URL that the opening handshake cannot carry as it is, or None.

    The URL parser silently drops line breaks, so the whole URL is checked and not its parts.
    """
    if has_control_characters(url) or " " in url:
        return "contains a space, a line break or a control character; percent-encode it, or leave it out"
    if not (parts.path + parts.query).isascii():
        return "contains non-ASCII characters in its path or query; percent-encode them"
    if parts.fragment or url.endswith("#"):
        return "has a fragment (#…), which is never sent to a server; leave it out"
    if parts.username is not None and parts.password is None:
        return "has a user name without a password; write user:password@, or leave it out"
    return None


def public_target(url: str) -> str:
    """Return the target without credentials, query and fragment, as it is stored and shown."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    authority, slash, path = rest.partition("#")[0].partition("?")[0].partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"
