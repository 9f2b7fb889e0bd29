"""Chooses the transport of a call by what its protocol declares."""

import urllib.parse
from functools import partial
from typing import Final

from loadtest.engine.transports.base import Transport, TransportParts
from loadtest.engine.transports.dialing import await_dial_in, dial
from loadtest.engine.transports.http import HttpTransport
from loadtest.engine.transports.room import RoomTransport
from loadtest.engine.transports.services import ServicesTransport
from loadtest.engine.transports.stream import AudioHeads, StreamTransport
from loadtest.engine.transports.webrtc import WebRtcTransport
from loadtest.protocols.address import parse_address
from loadtest.protocols.base import CallerProtocol, Capabilities, OpenRequest
from loadtest.protocols.transports.byte_streams import EventLines, LengthPrefixed
from loadtest.protocols.transports.framing import Framing
from loadtest.protocols.transports.masked_frames import joining
from loadtest.protocols.transports.websocket import WebSocketClient

_ENCRYPTED: Final = frozenset({"wss", "tls", "https"})


def can_be_paced(capabilities: Capabilities, url: str) -> bool:
    """Return whether the pacer thread can send a wire's frames: to a socket without TLS, complete but for numbers."""
    is_stream = capabilities.transport in ("websocket", "tcp", "tcp-listen")
    is_counted = not capabilities.audio_heads or capabilities.transport == "websocket"
    return is_stream and is_counted and urllib.parse.urlsplit(url).scheme not in _ENCRYPTED


def make_transport(parts: TransportParts, protocol: CallerProtocol, request: OpenRequest) -> Transport:
    """Create the transport of one call, not opened yet. Blocks only the calling greenlet.

    Raises UsageError for a request that cannot be made, and InstrumentError where what carries it cannot be started.
    """
    capabilities = protocol.capabilities
    limit = parts.max_message_bytes
    if capabilities.transport == "http":
        parse_address(request.url, "http")
        return HttpTransport(parts, protocol)
    if capabilities.transport == "webrtc":
        parse_address(request.url, "http")
        return WebRtcTransport(parts, parts.webrtc)
    if capabilities.transport == "livekit-room":
        parse_address(request.url, "livekit-room")
        return RoomTransport(parts, parts.rooms)
    join = joining(capabilities, parts.mask)
    heads = None if join is None else AudioHeads(protocol, join, parts.mask)
    if request.services:
        addresses = {name: parse_address(url, capabilities.transport) for name, url in request.services.items()}
        return ServicesTransport(parts, addresses, request.audio_service, heads)
    framing: Framing
    if capabilities.transport == "websocket":
        framing = WebSocketClient(request, max_message_bytes=limit)
    else:
        is_lines = capabilities.framing == "event_lines"
        framing = EventLines(max_message_bytes=limit) if is_lines else LengthPrefixed(max_message_bytes=limit)
    obtain = partial(await_dial_in, wait_s=request.wait_s) if capabilities.transport == "tcp-listen" else dial
    return StreamTransport(parts, parse_address(request.url, capabilities.transport), framing, heads, obtain)
