"""The interface of a wire to the contract suite: a scripted server, step by step, as whole messages.

A wire joins the suite by a module in `contract/scripts/` with a table `SCRIPTS` from its registered names to classes
derived from `WireScript`. One instance serves one conversation, and may keep what the caller has sent (request ids, a
stream id) to answer with it. A message is what the wire's `receive` takes: `str | bytes` on a WebSocket, `bytes` on
TCP, `HttpItem` on HTTP.

A script that derives from another one takes a step back by `step = WireScript.step`.

Write the messages as the vendor's documents or recorded sessions have them, never with the encoder under test.

A step returns the messages in the order in which the server sends them. Steps that are no stage of every turn are asked
only of wires that define them. A stage is None where the wire has no such thing: it must be declared as not observable
(`STAGES` in `test_contract_capabilities.py`), and one that is declared so must be None.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from loadtest.protocols.base import CallerOptions, Incoming, Outgoing, SpokenText

Messages = Sequence[Incoming]
# The steps of an answered turn. A wire whose server sends them in another order says so in `order`.
Stage = Literal[
    "speech_started",
    "partial",
    "speech_stopped",
    "final",
    "reply_started",
    "text",
    "synthesis_started",
    "audio",
    "reply_done",
]
ORDER: Final[tuple[Stage, ...]] = (
    "speech_started",
    "partial",
    "speech_stopped",
    "final",
    "reply_started",
    "text",
    "synthesis_started",
    "audio",
    "reply_done",
)
UTTERANCE: Final = SpokenText("turn the light on", "en-US", lead_ns=100_000_000, utterance_id="lights-1")


@dataclass(frozen=True)
class Refused:
    """The message of a server that refuses, and the failure that the caller must report."""

    messages: Messages
    kind: str  # of telemetry.model.semconv.FailureKind
    code: str | None
    retry_after_ns: int | None = None


class WireScript:
    """The server's side of one conversation. Every step that a wire does not override, it does not have."""

    options: ClassVar[CallerOptions] = CallerOptions()
    url: ClassVar[str] = "ws://127.0.0.1:1/"
    reply_rate_hz: ClassVar[int] = 24_000  # of the audio that `audio` is given
    exact_audio: ClassVar[bool] = True  # False: the wire's encoding is lossy (G.711, Opus)
    order: ClassVar[tuple[Stage, ...]] = ORDER
    # Stages before this one are sent while the caller speaks, the rest after `end_turn`.
    first_after_speech: ClassVar[Stage] = "speech_stopped"

    def answers(self, sent: Outgoing) -> Messages:
        """Return the server's immediate response to a caller's message: acknowledgments, a session's state."""
        del sent
        return ()

    def ends_turn(self, sent: Outgoing) -> bool:
        """Whether a message from the caller, after frames of audio, ends its turn: on most wires any one does."""
        del sent
        return True

    def greets(self) -> Messages:
        """Return what the server sends unasked when the connection is open. With `answers` this makes READY."""
        return ()

    # The caller's speech.

    def speech_started(self) -> Messages | None:
        """The endpoint detects that the caller began to speak."""
        return None

    def partial(self, text: str) -> Messages | None:
        """A partial transcript; `text` is all that was recognized so far. Called once a turn."""
        del text
        return None

    def speech_stopped(self) -> Messages | None:
        """The endpoint closes the caller's turn."""
        return None

    def final(self, text: str) -> Messages | None:
        """The final transcript."""
        del text
        return None

    def asr_failed(self) -> Messages:
        """The endpoint says that it could not transcribe."""
        raise NotImplementedError

    # The reply. The suite calls `reply_started` before the other steps of each reply.

    def reply_started(self) -> Messages | None:
        """A response begins. A wire that has no message for it may still note here that a reply follows."""
        return None

    def text(self, text: str) -> Messages | None:
        """One piece of the answer's text."""
        del text
        return None

    def synthesis_started(self) -> Messages | None:
        """The endpoint says that it begins to speak."""
        return None

    def audio(self, pcm: bytes) -> Messages | None:
        """One piece of the reply's audio: 16-bit little-endian mono at `reply_rate_hz`. None: a wire without audio."""
        del pcm
        return None

    def reply_done(self) -> Messages | None:
        """The response is complete. None where the reply ends by silence."""
        return None

    def broken_off(self) -> Messages | None:
        """Return the endpoint's messages when the caller speaks into the current reply: that it stops it."""
        return None

    def clear(self) -> Messages | None:
        """The endpoint asks to play nothing more of what it has sent."""
        return None

    def mark(self, name: str) -> Messages:
        """The endpoint asks for a message when what it has sent is played."""
        raise NotImplementedError

    def service_report(self) -> Messages:
        """The service states its own latencies, cache, route or usage."""
        raise NotImplementedError

    # What goes wrong.

    def error(self) -> Messages:
        """An error after which the conversation goes on."""
        raise NotImplementedError

    def fatal_error(self) -> Refused:
        """An error that ends the session, in the middle of it."""
        raise NotImplementedError

    def refusal(self) -> Refused:
        """Instead of `greets`: the endpoint does not accept this session. Not defined where only HTTP can say so."""
        raise NotImplementedError

    def capacity(self) -> Refused:
        """Instead of `greets`: the endpoint has no room for another session. Not defined where only HTTP can say so."""
        raise NotImplementedError

    def unknown(self) -> Messages | None:
        """Well-formed messages of a type that the protocol does not define. None where any type is allowed."""
        return None

    def malformed(self) -> Messages:
        """Messages that break the protocol."""
        raise NotImplementedError

    def repeated(self) -> Messages:
        """Messages of which the last repeats one before it. Not defined where nothing identifies a message.

        Called within a reply, after `reply_started`.
        """
        raise NotImplementedError

    def closing(self) -> Messages | None:
        """Return what the server sends before it closes the connection as agreed. None if it just closes."""
        return None

    # How whole messages travel.

    def encoded(self, messages: Messages) -> bytes:
        """The bytes of whole messages on a byte stream of the wire's own (TCP). WebSocket and HTTP need none."""
        raise NotImplementedError

    def decoder(self) -> Any:
        """A new `loadtest.protocols.transports.framing.Framing` of that byte stream, for TCP wires."""
        raise NotImplementedError


Scripts = Mapping[str, type[WireScript]]
