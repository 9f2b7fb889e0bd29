"""The caller's side of Pipecat's SmallWebRTC: offer and answer by HTTP, audio by RTP, RTVI over a data channel.

Source: pipecat 1.14.0, transports/smallwebrtc/{connection,transport}.py.

The bot says by RTVI when a reply begins and ends; its audio comes on another way, a little later. A reply's audio
begins with the first packet that is not silent, and a reply that the bot has ended or broken off goes on until the
line is silent: that is what a caller hears. Nothing can be cleared, for nothing is sent ahead.

An address that ends in `/start` first gets `POST …/start`, and the offer goes to `…/sessions/ID/api/offer`, as on
Pipecat Cloud and its development runner; the offer goes to any other address as it is. Source: pipecat 1.14.0,
transports/smallwebrtc/request_handler.py and runner/run.py.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import orjson
import pydantic

from loadtest.audio import pcm as pcm_codec
from loadtest.audio.idle_line import is_audible
from loadtest.audio.pcm import Pcm16
from loadtest.protocols.base import (
    CallerOptions,
    CallerProtocol,
    Capabilities,
    EventKind,
    Message,
    OpenRequest,
    Outgoing,
    SpokenText,
    VoiceEvent,
)
from loadtest.protocols.error_objects import refused_request
from loadtest.protocols.failure import Failure, retry_after_of_headers
from loadtest.protocols.headers import bearer_headers
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpFailed, HttpHead, HttpItem, HttpRequest
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_list,
    as_object,
    excerpt,
    parse_object,
    required_text,
)
from loadtest.protocols.pipecat.caller import RtviVersion, faults_of_the_bot
from loadtest.protocols.pipecat.rtvi import VERSION, RtviReply, RtviSession, Status, client_ready, disconnect, trace
from loadtest.protocols.webrtc_items import (
    ChannelOpen,
    IceServer,
    KeepAlive,
    LocalOffer,
    MakeOffer,
    PeerAudio,
    PeerQuiet,
    PeerReport,
    RemoteAnswer,
    WebRtcItem,
)
from loadtest.protocols.wire_settings import WireSettings, checked_settings

START_ID: Final = "start"
OFFER_ID: Final = "offer"
_START_PATH: Final = "/start"
_LONGEST_BODY_BYTES: Final = 2**20
_ASKED: Final = {START_ID: "the start of a session", OFFER_ID: "the offer"}
_JSON: Final = ("Content-Type", "application/json")


class Signaling:
    """The exchange of one call. `pending` are the messages to send next; `failed` once it has failed."""

    def __init__(self, url: str, headers: Sequence[tuple[str, str]], data: Mapping[str, Any]) -> None:
        """Take the address, the headers of each request, and what the bot's code is to get."""
        self._url = url
        self._headers = (_JSON, *headers)
        self._data = data
        self._ice_servers: tuple[IceServer, ...] = ()
        self._offer_url = url
        self._head: HttpHead | None = None
        self._body = bytearray()
        self._running: str | None = None
        self._done = False
        self.pending: list[Outgoing] = []

    def begin(self, ice_servers: tuple[IceServer, ...]) -> Sequence[Outgoing]:
        """Return the first message: a session is started where the address says so, then an offer is made."""
        self._ice_servers = ice_servers
        if urlsplit(self._url).path.endswith(_START_PATH):
            return [self._post(START_ID, self._url, {"transport": "webrtc", "body": self._data})]
        return [MakeOffer(ice_servers)]

    def offer(self, sdp: str) -> None:
        """Post the offer."""
        body: dict[str, Any] = {"sdp": sdp, "type": "offer"}
        if self._offer_url == self._url:  # a session that was started has its data already
            body["request_data"] = self._data
        self.pending.append(self._post(OFFER_ID, self._offer_url, body))

    def receive(self, item: HttpItem) -> list[VoiceEvent]:
        """Decode one part of a response; never raises."""
        if item.request_id != self._running:
            return [VoiceEvent(EventKind.OTHER, item.request_id)]
        if isinstance(item, HttpHead):
            self._head = item if item.status >= 200 else self._head
        elif isinstance(item, HttpData):
            if len(self._body) < _LONGEST_BODY_BYTES:
                self._body += item.data
        elif isinstance(item, HttpFailed):
            return self._fatal(f"{_ASKED[item.request_id]} failed: {item.reason}", item.failure)
        else:
            return self._ended(item.request_id)
        return [VoiceEvent(EventKind.OTHER, item.request_id)]

    def _post(self, request_id: str, url: str, body: Mapping[str, Any]) -> HttpRequest:
        self._running, self._head = request_id, None
        self._body.clear()
        return HttpRequest(request_id, "POST", url, self._headers, orjson.dumps(body))

    def _ended(self, asked: str) -> list[VoiceEvent]:
        head, body, self._running = self._head, bytes(self._body), None
        if head is None:
            return self._fatal(f"{_ASKED[asked]}: a response without a head", Failure("protocol_violation", "not_http"))
        if not 200 <= head.status < 300:
            failure = Failure("http_status", str(head.status), retry_after_of_headers(head.headers))
            who = f"the endpoint, for {_ASKED[asked]},"
            url = self._url if asked == START_ID else self._offer_url
            return self._fatal(
                refused_request(who, head.status, body.decode(errors="replace"), head.headers, url), failure
            )
        try:
            fields = parse_object(body)
            if asked == START_ID:
                self._started(fields)
            else:
                self._answered(fields)
        except MalformedError as error:
            sentence = f"the response to {_ASKED[asked]}: {error}"
            return self._fatal(sentence, Failure("protocol_violation", "malformed_message"))
        return [VoiceEvent(EventKind.OTHER, asked)]

    def _started(self, fields: Json) -> None:
        session = required_text(fields, "sessionId")
        parts = urlsplit(self._url)
        path = f"{parts.path.removesuffix(_START_PATH)}/sessions/{quote(session, safe='')}/api/offer"
        self._offer_url = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
        self.pending.append(MakeOffer((*self._ice_servers, *_ice_servers(fields))))

    def _answered(self, fields: Json) -> None:
        if required_text(fields, "type") != "answer":
            raise MalformedError(f"'type' is {excerpt(required_text(fields, 'type'))}; it should be 'answer'")
        self.pending.append(RemoteAnswer(required_text(fields, "sdp")))

    def _fatal(self, message: str, failure: Failure) -> list[VoiceEvent]:
        self._running = None
        return [VoiceEvent(EventKind.ERROR, "signaling", message=message, fatal=True, failure=failure)]


def _ice_servers(fields: Json) -> tuple[IceServer, ...]:
    """Return the servers of a started session; invalid entries are left out."""
    config = as_object(fields.get("iceConfig")) or {}
    servers: list[IceServer] = []
    for element in as_list(config.get("iceServers")) or ():
        entry = as_object(element) or {}
        urls = entry.get("urls")
        named = [urls] if isinstance(urls, str) else as_list(urls) or []
        texts = tuple(url for url in named if isinstance(url, str))
        username, credential = entry.get("username"), entry.get("credential")
        if texts:
            servers.append(
                IceServer(
                    texts,
                    username if isinstance(username, str) else None,
                    credential if isinstance(credential, str) else None,
                )
            )
    return tuple(servers)


# How much of a reply's audio may follow its end before that counts all the same: bots may play background sound.
LONGEST_REST_MS: Final = 500


class RtpReply(RtviReply):
    """The reply under way, if any, on a line whose audio never stops."""

    def __init__(self) -> None:
        super().__init__()
        self._audible = False  # the newest packet
        self._held: tuple[str, Status] | None = None  # how the reply ended whose last audio is still coming
        self._rest_ms = 0.0  # what has come of it since

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """Account for one packet; silence before the first audible one of a reply is the idle line."""
        self._audible = is_audible(pcm)
        if self._held is not None:
            self._rest_ms += len(pcm) / 2 / rate_hz * 1000
            if not self._audible or self._rest_ms > LONGEST_REST_MS:
                return self._release()
        if not self.is_open or not (self._audible or "audio" in self.carried):
            return []
        return super().audio(raw_type, pcm, rate_hz)

    def quiet(self) -> list[VoiceEvent]:
        """Account for a line on which no packet comes."""
        self._audible = False
        return self._release()

    def started(self, part: str, raw_type: str) -> list[VoiceEvent]:
        """Begin another reply, or a part of one: what is left of the one before it is over."""
        return [*self._release(), *super().started(part, raw_type)]

    def text(self, raw_type: str, text: str) -> list[VoiceEvent]:
        """Account for a piece of text; a reply that was ended has no more of it."""
        if self._held is not None:
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        return super().text(raw_type, text)

    def _close(self, raw_type: str, status: Status) -> list[VoiceEvent]:
        """End the reply once the line is silent."""
        if self._held is not None:
            return []
        if self._audible and "audio" in self.carried:
            self._held = (raw_type, status)
            self._rest_ms = 0.0
            return []
        return super()._close(raw_type, status)

    def _release(self) -> list[VoiceEvent]:
        """End the reply that was ended before; without one, nothing."""
        if self._held is None:
            return []
        held, self._held = self._held, None
        return super()._close(*held)


_SERVER: str = r"^(stun|stuns|turn|turns):[^\s]+$"


class SmallWebRtcSettings(WireSettings):
    """The `[protocol]` table of a scenario.

    `request_data` is what the bot's code gets as `runner_args.body`; `ice_servers` are STUN and TURN servers without
    credentials, none by default.
    """

    request_data: Mapping[str, Any] = pydantic.Field(default_factory=dict[str, Any])
    ice_servers: tuple[Annotated[str, pydantic.Field(pattern=_SERVER)], ...] = ()
    rtvi_version: RtviVersion = VERSION


NAME: Final = "smallwebrtc"
RATE_HZ: Final = 48_000
FRAME_MS: Final = 20
# Pipecat takes a caller who has once sent a ping for gone after 3 s without one.
PING: Final = KeepAlive("ping", 1000)
_SIGNALING: Final = b'"signalling"'
_NOT_OBSERVABLE: Final[Mapping[str, str]] = {
    "leading_silence": "RTP carries silence all the time, so the silence of a reply looks like that of the line",
    "tts_first_chunk_latency": "RTP carries silence all the time, so the first chunk of a reply looks like it",
}


class SmallWebRtcCaller(CallerProtocol):
    """One conversation over SmallWebRTC."""

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError for settings and options that this wire does not have."""
        self._options = options
        self._settings = checked_settings(SmallWebRtcSettings, options, NAME, faults_of_the_bot(options, NAME))
        self._reply = RtpReply()
        self._session = RtviSession(self._reply)
        self._signaling = Signaling("", (), {})
        self._traceparent: str | None = None
        self._channel_is_open = False
        self._turns = 0
        self.capabilities = Capabilities(
            input_rate_hz=RATE_HZ,
            frame_ms=FRAME_MS,
            not_observable=_NOT_OBSERVABLE,
            audio_is_text=False,
            transport="webrtc",
            turn_controls=frozenset({"server"}),
        )

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Put the trace into the headers of the requests, and into the data that the bot's code gets."""
        self._traceparent = traceparent
        headers = bearer_headers(self._options.token, traceparent)
        data = dict(self._settings.request_data)
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
            return self._reply.quiet() or [VoiceEvent(EventKind.OTHER, "rtp")]
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
            self._send(PING, client_ready(self._settings.rtvi_version))
        return [VoiceEvent(EventKind.OTHER, "connected")]

    def _channel_message(self, message: Message) -> Sequence[VoiceEvent]:
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
        steps, self._signaling.pending = self._signaling.pending, []
        return [*steps, *super().pending()]

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return the samples unchanged: each call has an encoder of its own."""
        return pcm_codec.to_bytes(pcm)

    def begin_turn(self, spoken: SpokenText) -> Sequence[Outgoing]:
        """Send the trace of this turn to the bot's code, if there is one."""
        del spoken
        self._turns += 1
        if self._traceparent is None:
            return ()
        return (trace(self._traceparent, self._turns),)

    def goodbye(self) -> Sequence[Outgoing]:
        """Ask the bot to end its pipeline."""
        return (disconnect(),) if self._channel_is_open else ()
