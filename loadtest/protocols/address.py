"""An endpoint's address, and how it is shown: never with credentials or the query, which may contain secrets."""

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from loadtest.errors import UsageError
from loadtest.protocols.base import TransportKind
from telemetry.model.addresses import is_loopback
from telemetry.model.foreign_text import has_control_characters

# The schemes of each kind of transport, its name in a sentence, and an example.
_KINDS: Final[Mapping[TransportKind, tuple[tuple[str, ...], str, str]]] = {
    "websocket": (("ws", "wss"), "a WebSocket address", "ws://127.0.0.1:8765/v1/realtime"),
    "http": (("http", "https"), "an HTTP address", "http://127.0.0.1:8000/v1"),
    "tcp": (("tcp", "tls"), "a TCP address", "tcp://127.0.0.1:10300"),
    "tcp-listen": (("tcp-listen",), "an address to listen on", "tcp-listen://127.0.0.1:7777"),
    "webrtc": (("http", "https", "ws", "wss"), "an address of a WebRTC endpoint", "http://127.0.0.1:7860/api/offer"),
    "livekit-room": (("ws", "wss"), "an address of a LiveKit server", "wss://project.livekit.cloud"),
}
# Wires without a usual port.
_WITH_PORT: Final = frozenset({"tcp", "tcp-listen"})
SCHEMES: Final[Mapping[TransportKind, tuple[str, ...]]] = {kind: schemes for kind, (schemes, _, _) in _KINDS.items()}

# Of telephony: a person calls them, or a provider.
_TELEPHONE: Final = frozenset({"sip", "sips", "tel", "callto"})
_SECURE: Final = {"ws": "wss", "http": "https", "tcp": "tls"}
_PLAIN: Final = {secure: plain for plain, secure in _SECURE.items()}


@dataclass(frozen=True, slots=True)
class Address:
    """The address to connect to. `tls` is True for wss, https and tls.

    `other_scheme` is the one that differs from the address's in nothing but TLS, "" where there is none.
    """

    host: str
    port: int
    tls: bool
    other_scheme: str = ""


def parse_address(url: str, kind: TransportKind = "websocket") -> Address:
    """Parse the URL of a transport: ws or wss, http or https, tcp or tls, or tcp-listen.

    Raises UsageError with one sentence for anything else.
    """
    # A malformed address may contain its password anywhere.
    shown = "the address (not shown because it contains credentials)" if "@" in url else repr(public_target(url))
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except ValueError:
        host, parts = None, urllib.parse.urlsplit("")
    schemes, what, example = _KINDS[kind]
    if (scheme := url.partition(":")[0].lower()) in _TELEPHONE:
        raise UsageError(
            f"{scheme}: addresses cannot be called; give the WebSocket address to which the telephone provider streams "
            "calls, with --protocol twilio, telnyx, plivo, exotel or vonage"
        )
    if not url:
        raise UsageError(f"the target is missing: give {what} such as {example}")
    if parts.scheme not in schemes or not host:
        raise UsageError(f"{shown} is not {what}; give one such as {example}")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0 or (port is None and kind in _WITH_PORT):
        raise UsageError(f"{shown} has no valid port; it must be a number from 1 to 65535")
    # Anybody who can connect would be taken for the endpoint.
    if kind == "tcp-listen" and not is_loopback(host):
        raise UsageError(f"{shown} is not an address of this machine alone; listen on one such as {example}")
    if fault := _fault(url, parts):
        raise UsageError(f"{shown} {fault}")
    tls = parts.scheme in _PLAIN
    return Address(host, port or (443 if tls else 80), tls, other_scheme(parts.scheme))


def other_scheme(scheme: str) -> str:
    """Return the scheme that differs in nothing but TLS, "" if there is none."""
    return (_PLAIN | _SECURE).get(scheme, "")


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
