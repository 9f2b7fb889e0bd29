"""The interface between a virtual caller and a wire protocol. Pure: no socket, clock or sleep.

A `CallerProtocol` is one conversation on one connection, from the caller's side. It is fed whole messages and returns
normalized events and the messages to send. Framing (WebSocket) and timing are the engine's responsibility.
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
    """What happened on the wire, in the terms that all protocols share."""

    READY = "ready"  # the session accepts audio
    SPEECH_STARTED = "speech_started"  # the endpoint detected that the caller began to speak
    SPEECH_STOPPED = "speech_stopped"  # the endpoint ended the caller's turn
    ASR_PARTIAL = "asr_partial"
    ASR_FINAL = "asr_final"
    ASR_FAILED = "asr_failed"
    RESPONSE_STARTED = "response_started"
    LLM_TEXT = "llm_text"
    REASONING_TEXT = "reasoning_text"
    AUDIO = "audio"
    AUDIO_DONE = "audio_done"
    RESPONSE_DONE = "response_done"  # the response is complete; its status says how it ended
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
    audio: bytes | None = None  # PCM s16le mono at rate_hz, whatever the wire's encoding was
    rate_hz: int | None = None
    status: str | None = None  # RESPONSE_DONE: completed, cancelled, failed, incomplete or SUPERSEDED
    carried: frozenset[Content] = _NO_CONTENT  # RESPONSE_DONE: what the response contained
    owes_response: bool = False  # RESPONSE_DONE: the endpoint must send another response before it has answered
    reports_latency: bool = False  # RESPONSE_DONE: the service reports its own latencies
    metadata: Mapping[str, str] = _NOTHING
    usage: Mapping[str, int] = _NOTHING  # flattened: output_tokens, cached_tokens, …
    message: str | None = None  # ERROR: the endpoint's error message
    fatal: bool = False  # ERROR: the conversation cannot continue
    failure: Failure | None = None  # ERROR, failed RESPONSE_DONE: the cause as a value


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a wire protocol needs and what it can show.

    `not_observable` maps the name of a metric to the reason why this protocol cannot show it.
    """

    input_rate_hz: int
    frame_ms: int
    not_observable: Mapping[str, str]
    audio_is_text: bool = True  # whether `audio_message` is sent in text frames rather than binary ones


@dataclass(frozen=True, slots=True)
class UpgradeRequest:
    """How to open the WebSocket."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    subprotocols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallerOptions:
    """What the caller requests from the endpoint, in protocol-neutral terms."""

    turn_control: TurnControl = "server"
    model: str | None = None
    transcription_model: str | None = None
    voice: str | None = None
    instructions: str | None = None
    silence_duration_ms: int | None = None  # None: the endpoint's default
    input_format: Literal["pcm16", "pcmu", "pcma"] = "pcm16"
    output_format: Literal["pcm16", "pcmu", "pcma"] = "pcm16"
    token: str | None = None  # a bearer token; never stored, never printed
    headers: tuple[tuple[str, str], ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()


class CallerProtocol(Protocol):
    """The caller's side of one conversation. Instances are created per connection and not shared."""

    capabilities: Capabilities

    def upgrade(self, target_url: str, traceparent: str | None) -> UpgradeRequest:
        """Return the URL, headers and subprotocols for the opening handshake."""
        ...

    def opened(self) -> Sequence[Message]:
        """Return the messages to send as soon as the connection is open."""
        ...

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message. Never raises: a message that cannot be decoded becomes an ERROR event.

        The protocol decides when a response is over: unless the connection ends first, every response that began ends
        with a RESPONSE_DONE, even if the wire never closes it because a newer one supersedes it. A response that is not
        meant for the caller produces no reply events.
        """
        ...

    def pending(self) -> Sequence[Message]:
        """Return the protocol's own answers to what it received, and empty the queue."""
        ...

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return the message (before framing) that carries one frame of audio at the input rate.

        It depends on nothing else, so that frames can be prepared once and shared by all callers.
        """
        ...

    def end_turn(self) -> Sequence[Message]:
        """Return the messages that signal the end of the caller's turn; none under server turn control."""
        ...

    def interrupt(self, played_ms: int) -> Sequence[Message]:
        """Return the messages to send when the caller interrupts the reply after hearing `played_ms` of it."""
        ...

    def goodbye(self) -> Sequence[Message]:
        """Return the messages to send before the connection is closed."""
        ...
