"""What every wire must offer a virtual caller: pure values in, pure values out; no socket, clock or sleep.

A `CallerProtocol` is one conversation on one connection, seen from the caller. It is fed whole messages and returns
normalized events; what it wants to send it returns as messages. Framing (WebSocket) and sending in time belong to
the engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadtest.protocols.failure import Failure

Message = str | bytes
Pcm16 = NDArray[np.int16]
TurnControl = Literal["server", "manual"]


class EventKind(StrEnum):
    """What happened on the wire, in the words every protocol shares."""

    READY = "ready"  # the session takes audio
    SPEECH_STARTED = "speech_started"  # the endpoint heard the caller begin
    SPEECH_STOPPED = "speech_stopped"  # the endpoint closed the caller's turn
    ASR_PARTIAL = "asr_partial"
    ASR_FINAL = "asr_final"
    ASR_FAILED = "asr_failed"
    RESPONSE_STARTED = "response_started"
    LLM_TEXT = "llm_text"
    REASONING_TEXT = "reasoning_text"
    AUDIO = "audio"
    AUDIO_DONE = "audio_done"
    RESPONSE_DONE = "response_done"  # nothing more of this response is owed; how it ended is its status
    ERROR = "error"
    OTHER = "other"  # known, and no caller needs it
    UNKNOWN = "unknown"  # the protocol does not know this type of message: counted
    DUPLICATE = "duplicate"  # the endpoint sent a message twice: counted, and not decoded again


# What a response can carry. A tool call is for whoever runs the endpoint's tools, never for the caller to hear.
Content = Literal["audio", "text", "tool_call"]
# The status of a RESPONSE_DONE that the wire never sent: a newer response took the place of this one.
SUPERSEDED: Final = "superseded"

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_NO_CONTENT: Final[frozenset[Content]] = frozenset()


class VoiceEvent(msgspec.Struct, frozen=True, gc=False):
    """One normalized event. Only the fields its kind calls for are set.

    One is made for every message there is, thousands a second: a struct takes a fifth of a data class's time.
    """

    kind: EventKind
    raw_type: str
    response_id: str | None = None
    item_id: str | None = None
    text: str | None = None  # a delta, or the whole text for ASR_FINAL
    audio: bytes | None = None  # PCM s16le mono at rate_hz, whatever the wire's encoding was
    rate_hz: int | None = None
    status: str | None = None  # RESPONSE_DONE: completed, cancelled, failed, incomplete or SUPERSEDED
    carried: frozenset[Content] = _NO_CONTENT  # RESPONSE_DONE: what came with the response
    owes_response: bool = False  # RESPONSE_DONE: the endpoint must send another response before it has answered
    reports_latency: bool = False  # RESPONSE_DONE: the service states latencies of its own
    metadata: Mapping[str, str] = _NOTHING
    usage: Mapping[str, int] = _NOTHING  # flattened: output_tokens, cached_tokens ...
    message: str | None = None  # ERROR: what the endpoint said
    fatal: bool = False  # ERROR: the conversation cannot go on
    failure: Failure | None = None  # ERROR, RESPONSE_DONE that failed: the same as a value


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a wire can show and needs. `not_observable` maps a metric name to the reason it cannot be seen."""

    input_rate_hz: int
    frame_ms: int
    not_observable: Mapping[str, str]
    audio_is_text: bool = True  # whether `audio_message` goes into text frames or binary ones


@dataclass(frozen=True, slots=True)
class UpgradeRequest:
    """How to open the WebSocket."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    subprotocols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallerOptions:
    """What the caller asks of the endpoint, in protocol-neutral words."""

    turn_control: TurnControl = "server"
    model: str | None = None
    transcription_model: str | None = None
    voice: str | None = None
    instructions: str | None = None
    silence_duration_ms: int | None = None  # None leaves the endpoint's own default
    input_format: Literal["pcm16", "pcmu", "pcma"] = "pcm16"
    output_format: Literal["pcm16", "pcmu", "pcma"] = "pcm16"
    token: str | None = None  # a bearer token; never stored, never printed
    headers: tuple[tuple[str, str], ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()


class CallerProtocol(Protocol):
    """One conversation, the caller's side. Instances are made per connection and are not shared."""

    capabilities: Capabilities

    def upgrade(self, target_url: str, traceparent: str | None) -> UpgradeRequest:
        """The URL, headers and subprotocols for the opening handshake."""
        ...

    def opened(self) -> Sequence[Message]:
        """Messages to send as soon as the connection is open."""
        ...

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message. Never raises: what cannot be understood is an ERROR event that says so.

        Whether a response is over is for the protocol to say: every response that began ends in a RESPONSE_DONE, also
        one that the wire never closes because a newer one supersedes it, unless the connection ends before. A response
        that arrives for somebody else than the caller gives no events of a reply.
        """
        ...

    def pending(self) -> Sequence[Message]:
        """Messages the protocol itself wants sent in answer to what it received; empties the queue."""
        ...

    def audio_message(self, pcm: Pcm16) -> bytes:
        """The message (before framing) that carries one frame of audio at the input rate. Depends on nothing else, so
        that frames can be prepared once and shared by all callers."""
        ...

    def end_turn(self) -> Sequence[Message]:
        """What tells the endpoint that the caller has finished; nothing under server turn control."""
        ...

    def interrupt(self, played_ms: int) -> Sequence[Message]:
        """What a client owes the endpoint when its caller speaks into the reply, `played_ms` of which were heard."""
        ...

    def goodbye(self) -> Sequence[Message]:
        """What to send before the connection is closed."""
        ...
