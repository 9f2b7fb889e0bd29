"""The items of a protocol over WebRTC other than HTTP requests and texts of the data channel. Pure.

The transport makes the peer connection; how offer and answer are exchanged is the protocol's responsibility.
"""

import msgspec


class IceServer(msgspec.Struct, frozen=True, gc=False):
    """A STUN or TURN server, as an SDP agent is configured with it."""

    urls: tuple[str, ...]
    username: str | None = None
    credential: str | None = None


class MakeOffer(msgspec.Struct, frozen=True, gc=False):
    """Make a peer connection with one audio track in each direction and a data channel, and offer it."""

    ice_servers: tuple[IceServer, ...] = ()


class LocalOffer(msgspec.Struct, frozen=True, gc=False):
    """The offer, with all ICE candidates in it."""

    sdp: str


class RemoteAnswer(msgspec.Struct, frozen=True, gc=False):
    """Take the endpoint's answer, and connect."""

    sdp: str


class ChannelOpen(msgspec.Struct, frozen=True, gc=False):
    """The peers are connected and the data channel is open: texts may be sent."""


class KeepAlive(msgspec.Struct, frozen=True, gc=False):
    """Send a text over the data channel every so often, for as long as the call lasts."""

    text: str
    every_ms: int


class PeerAudio(msgspec.Struct, frozen=True, gc=False):
    """The audio of one RTP packet: 16-bit little-endian mono.

    `lost_before` is the number of packets that are missing directly before it; `jitter_ns` is the interarrival jitter
    of the stream so far (RFC 3550, 6.4.1).
    """

    pcm: bytes
    rate_hz: int
    lost_before: int = 0
    jitter_ns: int = 0


class PeerQuiet(msgspec.Struct, frozen=True, gc=False):
    """No RTP packet has come for a while."""


class PeerReport(msgspec.Struct, frozen=True, gc=False):
    """The endpoint's RTCP report on the caller's audio that it has received so far."""

    packets_lost: int
    jitter_ns: int


WebRtcItem = LocalOffer | ChannelOpen | PeerAudio | PeerQuiet | PeerReport
WebRtcCommand = MakeOffer | RemoteAnswer | KeepAlive
