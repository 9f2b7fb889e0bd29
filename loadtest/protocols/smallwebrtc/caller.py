"""The caller's side of Pipecat's SmallWebRTC: offer and answer by HTTP, audio by RTP, RTVI over a data channel.

Source: pipecat 1.14.0, transports/smallwebrtc/{connection,transport}.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from loadtest.audio import pcm as pcm_codec
from loadtest.protocols.base import (
    CallerDefaults,
    CallerOptions,
    Capabilities,
    EventKind,
    Message,
    OpenRequest,
    Outgoing,
    Pcm16,
    SpokenText,
    VoiceEvent,
)
from loadtest.protocols.failure import Failure
from loadtest.protocols.headers import bearer_headers
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpFailed, HttpHead, HttpItem
from loadtest.protocols.json_fields import MalformedError, as_object, parse_object
from loadtest.protocols.pipecat import client_messages
from loadtest.protocols.pipecat.rtvi import RtviSession
from loadtest.protocols.registry import register_built_in
from loadtest.protocols.smallwebrtc.reply import RtpReply
from loadtest.protocols.smallwebrtc.settings import checked_settings
from loadtest.protocols.smallwebrtc.signaling import Signaling
from loadtest.protocols.webrtc_items import (
    ChannelOpen,
    IceServer,
    KeepAlive,
    LocalOffer,
    PeerAudio,
    PeerQuiet,
    PeerReport,
    WebRtcItem,
)

NAME: Final = "smallwebrtc"
RATE_HZ: Final = 48_000
FRAME_MS: Final = 20
# Pipecat takes a caller who has once sent a ping for gone after 3 s without one.
PING: Final = KeepAlive("ping", 1000)
_SIGNALING: Final = b'"signalling"'
_NOT_OBSERVABLE: Final[Mapping[str, str]] = {
    "leading_silence": "RTP carries silence all the time: the silence of a reply cannot be told from that of the line",
    "tts_first_chunk_latency": "RTP carries silence all the time: the first chunk of a reply cannot be told from it",
}


@register_built_in(NAME)
class SmallWebRtcCaller(CallerDefaults):
    """One conversation over SmallWebRTC. Implements `loadtest.protocols.base.CallerProtocol`."""

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError for settings and options that this wire does not have."""
        self._options = options
        self._settings = checked_settings(options, NAME)
        self._reply = RtpReply()
        self._session = RtviSession(self._reply)
        self._signaling = Signaling("", (), {})
        self._traceparent: str | None = None
        self._pending: list[Outgoing] = []
        self._channel_is_open = False
        self._turns = 0
        self.capabilities = Capabilities(
            input_rate_hz=RATE_HZ,
            frame_ms=FRAME_MS,
            not_observable=_NOT_OBSERVABLE,
            audio_is_text=False,
            transport="webrtc",
            turn_controls=frozenset({"server"}),
            paces_output=True,
        )

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Put the trace into the headers of the requests, and into the data that the bot's code gets."""
        self._traceparent = traceparent
        headers = bearer_headers(self._options.token, traceparent)
        data: dict[str, Any] = {**dict(self._options.metadata), **self._settings.request_data}
        if traceparent is not None:
            data.setdefault("traceparent", traceparent)
        request = OpenRequest(target_url, (*headers, *self._options.headers))
        self._signaling = Signaling(target_url, request.headers, data)
        return request

    def opened(self) -> Sequence[Outgoing]:
        """Begin to negotiate."""
        return self._signaling.begin(tuple(IceServer((url,)) for url in self._settings.ice_servers))

    def receive(self, message: Message | HttpItem | WebRtcItem) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        if isinstance(message, PeerAudio):
            return self._session.audio("rtp", message.pcm, message.rate_hz, 1)
        if isinstance(message, str | bytes):
            return self._channel_message(message)
        if isinstance(message, HttpHead | HttpData | HttpEnd | HttpFailed):
            return self._signaling.receive(message)
        if isinstance(message, PeerQuiet):
            return self._reply.quiet("rtp")
        if isinstance(message, PeerReport):
            return [VoiceEvent(EventKind.OTHER, "rtcp")]
        if isinstance(message, LocalOffer):
            self._signaling.offer(message.sdp)
            return [VoiceEvent(EventKind.OTHER, "offer")]
        return self._connected(message)

    def _connected(self, message: ChannelOpen) -> list[VoiceEvent]:
        """State the version of RTVI; the bot is ready when it has answered."""
        del message
        if not self._channel_is_open:
            self._channel_is_open = True
            self._pending += [PING, client_messages.client_ready(self._settings.rtvi_version)]
        return [VoiceEvent(EventKind.OTHER, "connected")]

    def _channel_message(self, message: Message) -> list[VoiceEvent]:
        data = message.encode(errors="replace") if isinstance(message, str) else message
        if _SIGNALING in data:
            try:
                fields = parse_object(data)
            except MalformedError:
                fields = {}
            if fields.get("type") == "signalling":
                return self._signaled(as_object(fields.get("message")) or {})
        return self._session.receive(data)

    def _signaled(self, fields: Mapping[str, object]) -> list[VoiceEvent]:
        """A message about the connection itself."""
        kind = fields.get("type")
        raw_type = f"signalling.{kind}" if isinstance(kind, str) else "signalling"
        if kind == "renegotiate":
            sentence = "the endpoint asked to renegotiate the connection; it goes on as it was agreed on"
            failure = Failure("other", "renegotiation")
            return [VoiceEvent(EventKind.ERROR, raw_type, message=sentence, failure=failure)]
        if kind == "peerLeft":
            sentence, failure = "the endpoint left the call", Failure("close_code", "peerLeft")
            return [VoiceEvent(EventKind.ERROR, raw_type, message=sentence, fatal=True, failure=failure)]
        return [VoiceEvent(EventKind.UNKNOWN, raw_type)]

    def pending(self) -> Sequence[Outgoing]:
        """Return the next step of the negotiation, and what is to be said over the data channel."""
        found = [*self._signaling.pending, *self._pending]
        self._signaling.pending.clear()
        self._pending.clear()
        return found

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return the samples unchanged: each call has an encoder of its own."""
        return pcm_codec.to_bytes(pcm)

    def begin_turn(self, spoken: SpokenText) -> Sequence[Outgoing]:
        """Tell the bot's code the trace of this turn, if there is one."""
        del spoken
        self._turns += 1
        if self._traceparent is None and not self._options.metadata:
            return ()
        return (client_messages.trace(self._traceparent, self._turns, self._options.metadata),)

    def goodbye(self) -> Sequence[Outgoing]:
        """Ask the bot to end its pipeline."""
        return (client_messages.disconnect(),) if self._channel_is_open else ()
