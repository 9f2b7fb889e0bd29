"""The interface between a virtual caller and a wire protocol. Pure: no socket, clock or sleep.

A `CallerProtocol` is one conversation, from the caller's side. It is fed whole messages and returns normalized events
and the messages to send. How messages travel (WebSocket, TCP, HTTP, WebRTC) is the transport's responsibility, and
timing is the engine's.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpAnswer, HttpCancel, HttpRequest
from loadtest.protocols.room_items import JoinRoom
from loadtest.protocols.webrtc_items import WebRtcCommand

if TYPE_CHECKING:  # the commands' help need not wait for numpy
    from loadtest.audio.pcm import Pcm16

Message = str | bytes


class ServiceMessage(bytes):
    """A whole message on a wire of several services over TCP. `service` names the one that it is for, or from."""

    service: str

    @classmethod
    def of(cls, service: str, content: bytes) -> "ServiceMessage":
        """Return the message of a service."""
        message = cls(content)
        message.service = service
        return message


class ServiceLost(msgspec.Struct, frozen=True, gc=False):
    """The connection of a service has ended, or none could be opened. The next message for it opens another one.

    `reason` is a sentence, `failure` the cause. Where nothing was asked of the service any more, this is no fault.
    """

    service: str
    reason: str
    failure: Failure


Outgoing = Message | HttpRequest | HttpCancel | WebRtcCommand | JoinRoom
# What a transport passes on: `Message` (WebSocket; bytes on TCP), `HttpItem` (HTTP), or `Message`, `HttpItem` and
# `WebRtcItem` (WebRTC). Each caller states its own.
Incoming = Any
TurnControl = Literal["server", "manual"]
# Under the calls, which know none of them. With "tcp-listen" the endpoint connects to the caller, which waits for it.
TransportKind = Literal["websocket", "tcp", "tcp-listen", "http", "webrtc", "livekit-room"]
# How the messages of a wire over TCP are parted: as Wyoming does, or each behind its length in 4 bytes.
FramingKind = Literal["event_lines", "length_prefixed"]
# What shows that a reply is complete: a message of the wire, or that no more audio of it comes.
ReplyEnd = Literal["event", "silence"]


class EventKind(StrEnum):
    """Events on the wire, in the terms that all protocols share."""

    READY = "ready"  # the session accepts audio
    SPEECH_STARTED = "speech_started"  # the endpoint detected that the caller began to speak
    SPEECH_STOPPED = "speech_stopped"  # the endpoint ended the caller's turn
    QUESTION_NAMED = "question_named"  # the endpoint has taken what the caller said as an item, with a name
    ASR_PARTIAL = "asr_partial"
    ASR_FINAL = "asr_final"
    ASR_FAILED = "asr_failed"
    RESPONSE_STARTED = "response_started"
    LLM_TEXT = "llm_text"
    SPOKEN_TEXT = "spoken_text"  # words of a reply that are sent when they are spoken: no stage of its making
    REASONING_TEXT = "reasoning_text"
    SPEECH_SYNTHESIS_STARTED = "speech_synthesis_started"  # the endpoint says that it began to speak
    AUDIO = "audio"
    AUDIO_DONE = "audio_done"
    CLEAR = "clear"  # the endpoint asks the caller to play nothing more of what it has sent
    MARK = "mark"  # named by `text`: to be answered when all audio that came before it has been played
    RESPONSE_DONE = "response_done"  # the response is complete; its status says how it ended
    SERVICE_REPORT = "service_report"  # the service reports its own latencies, cache, route or usage
    ERROR = "error"
    OTHER = "other"  # a known message that no caller needs
    UNKNOWN = "unknown"  # a type of message that the protocol does not define: counted
    DUPLICATE = "duplicate"  # a message that the endpoint sent twice: counted, and not decoded again


# What a response can contain. A tool call is meant for the endpoint's tools, never for the caller.
Content = Literal["audio", "text", "tool_call"]
# The status of a RESPONSE_DONE that the wire did not send: a newer response replaced this one.
SUPERSEDED: Final = "superseded"

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_NO_CONTENT: Final[frozenset[Content]] = frozenset()


class VoiceEvent(msgspec.Struct, frozen=True, gc=False):
    """One normalized event. Only the fields that apply to its kind are set.

    One is created for every message, thousands per second; a struct takes a fifth of a dataclass's time.
    """

    kind: EventKind
    raw_type: str
    response_id: str | None = None
    item_id: str | None = None
    text: str | None = None  # a delta, or the whole text for ASR_FINAL
    dated_by_partial: bool = False  # ASR_FINAL: no message says that it is final; its moment is the last ASR_PARTIAL's
    audio: bytes | None = None  # PCM s16le mono at rate_hz, whatever the wire's encoding was
    rate_hz: int | None = None
    status: str | None = None  # RESPONSE_DONE: completed, cancelled, failed, incomplete or SUPERSEDED
    carried: frozenset[Content] = _NO_CONTENT  # RESPONSE_DONE: what the response contained
    owes_response: bool = False  # RESPONSE_DONE: the endpoint must send another response before it has answered
    reports_latency: bool = False  # RESPONSE_DONE: the service reports its own latencies
    service_ns: Mapping[str, int] = _NOTHING  # the service's own latencies, by its names for them
    metadata: Mapping[str, str] = _NOTHING
    usage: Mapping[str, int] = _NOTHING  # flattened: output_tokens, cached_tokens, …
    message: str | None = None  # ERROR: the endpoint's error message
    fatal: bool = False  # ERROR: the conversation cannot continue
    failure: Failure | None = None  # ERROR, failed RESPONSE_DONE: the cause as a value


# When what the caller says is sent: while it is spoken; its audio when it is over; or never, but its words as text.
SpeechSending = Literal["as_spoken", "when_over", "as_text"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Needs of a wire protocol, and the metrics that it can show.

    `not_observable` maps the name of a metric to the reason why this protocol cannot show it.
    """

    input_rate_hz: int
    frame_ms: int
    not_observable: Mapping[str, str]
    audio_heads: bool = False  # whether each audio message begins with `audio_head`, so that only its rest is shared
    audio_is_text: bool = True  # whether `audio_message` is sent in text frames rather than binary ones
    transport: TransportKind = "websocket"
    framing: FramingKind | None = None  # of the transports "tcp" and "tcp-listen"
    turn_controls: frozenset[TurnControl] = frozenset({"server", "manual"})  # who can end the caller's turn
    reply_end: ReplyEnd = "event"
    names_questions: bool = True  # an event's `item_id` is the wire's own name; else only a count of this caller's
    shows_cuts: bool = True  # a message says that the endpoint breaks a reply off
    speech_stops_replies: bool = False  # SPEECH_STARTED asks the caller's client to play no more of the reply
    sends_speech: SpeechSending = "as_spoken"
    ready_when_open: bool = False  # no message is a READY event: the session is ready once `opened` has been sent

    @property
    def caller_ends_turns(self) -> bool:
        """Whether the caller must end its turns itself, since the endpoint cannot."""
        return "server" not in self.turn_controls


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """The address and options of a transport. `headers` and `subprotocols` are those of a WebSocket's handshake.

    Over HTTP they are not used: each request has headers of its own. With `prior`, nothing of this is used: the answer
    to that request says where and how to open the transport.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    subprotocols: tuple[str, ...] = ()
    wait_s: float | None = None  # how long to wait for an endpoint that connects to the caller; None: as for any other
    services: Mapping[str, str] = field(default_factory=dict[str, str])  # by their addresses, instead of `url`
    audio_service: str | None = None  # the one that frames of audio go to; None: none takes them
    prior: "PriorRequest | None" = None


@dataclass(frozen=True, slots=True)
class PriorRequest:
    """A request over HTTP that precedes the connection, such as a voice webhook.

    `opening` returns where and how to open the transport, without a `prior` of its own. It raises OpeningRefused for an
    answer that opens none.
    """

    request: HttpRequest
    opening: Callable[[HttpAnswer], OpenRequest]


@dataclass(frozen=True, slots=True)
class SpokenText:
    """The next utterance, for wires that carry words instead of audio, or in addition to it.

    The first speech sample comes `lead_ns` after the beginning of the turn's audio. `utterance_id` is the utterance's
    name in its corpus, None for words that are of none.
    """

    text: str
    language: str | None = None
    lead_ns: int = 0
    utterance_id: str | None = None


@dataclass(frozen=True, slots=True)
class CallerOptions:
    """The caller's requests to the endpoint, in protocol-neutral terms."""

    turn_control: TurnControl = "server"
    model: str | None = None
    transcription_model: str | None = None
    silence_duration_ms: int | None = None  # None: the endpoint's default
    token: str | None = None  # a bearer token; never stored, never printed
    headers: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])  # what only this wire knows; it checks them


class CountedHead:
    """The beginning of a call's frames: a text with numbers, each of which grows by a step from frame to frame.

    `pattern` has a `%d` for each number. `numbers` are those of the next frame, in memory that the pacer thread also
    counts in: a sender that takes one for another message holds the lock of that call's socket, where the thread sends.
    """

    def __init__(self, pattern: bytes, numbers: Sequence[int], steps: Sequence[int]) -> None:
        self.pattern = pattern
        self.numbers = array("q", numbers)
        self.steps = steps

    def next(self) -> bytes:
        """Return the head of the next frame."""
        head = self.pattern % tuple(self.numbers)
        for at, step in enumerate(self.steps):
            self.numbers[at] += step
        return head


class CallerProtocol:
    """The caller's side of one conversation. Instances are created per connection and not shared.

    What most wires do not need does nothing here. `_pending` is what waits to be sent in answer to what was received.
    """

    capabilities: Capabilities
    _pending: Sequence[Outgoing] = ()

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Return the address and the headers to open the transport with."""
        raise NotImplementedError

    def opened(self) -> Sequence[Outgoing]:
        """Return the messages to send as soon as the connection is open; none where the endpoint speaks first."""
        return ()

    def receive(self, message: Incoming) -> Sequence[VoiceEvent]:
        """Decode one message. Never raises: a message that cannot be decoded becomes an ERROR event.

        The protocol decides when a response is over: unless the connection ends first, every response that began ends
        with a RESPONSE_DONE, even if the wire never closes it because a newer one supersedes it. A response that is not
        meant for the caller produces no reply events.
        """
        raise NotImplementedError

    def pending(self) -> Sequence[Outgoing]:
        """Return the protocol's own answers to what it received, and empty the queue."""
        messages, self._pending = self._pending, ()
        return messages

    def _send(self, *messages: Outgoing) -> None:
        self._pending = (*self._pending, *messages)

    def audio_message(self, pcm: "Pcm16") -> bytes:
        """Return the message (before framing) that carries one frame of audio at the input rate.

        It depends on nothing else, so that frames can be prepared once and shared by all callers.
        """
        raise NotImplementedError

    def audio_head(self) -> bytes | None:
        """Return the beginning of the next audio message where it carries something of the call, else None.

        A sequence number, a time stamp or a stream id: the whole message is this followed by `audio_message`'s result,
        which stays the same for all callers. Called once per frame, in order, when the frame is sent, and only where
        `Capabilities.audio_heads` says so; None then means an empty beginning.
        """
        return None

    def counted_head(self) -> CountedHead | None:
        """Return what makes the beginnings of frames where these differ in nothing but numbers, else None.

        Once it is asked, `audio_head` is not called any more.
        """
        return None

    def begin_turn(self, spoken: SpokenText) -> Sequence[Outgoing]:
        """Return the messages that precede the first frame of the caller's turn; none on most wires."""
        del spoken
        return ()

    def end_turn(self) -> Sequence[Outgoing]:
        """Return the messages that signal the end of the caller's turn; none under server turn control."""
        return ()

    def interrupt(self, played_ms: int) -> Sequence[Outgoing]:
        """Return the messages to send when the caller interrupts the reply after hearing `played_ms` of it."""
        del played_ms
        return ()

    def played(self, mark: str) -> Sequence[Outgoing]:
        """Return the messages that tell the endpoint that everything before a MARK has been played or cleared."""
        del mark
        return ()

    def goodbye(self) -> Sequence[Outgoing]:
        """Return the messages to send before the connection is closed."""
        return ()

    def awaited(self) -> str | None:
        """Return the message that the opening of the session waits for, by its name on the wire; None for none."""
        return None

    def close_cause(self, code: int, reason: str) -> Failure | None:
        """Return the cause that the endpoint's close frame names in its reason, None where its code is the cause."""
        del code, reason
        return None
