"""The caller's side of the console link of LiveKit's agents: a real agent process, without a LiveKit server.

`python -m livekit.agents console AGENT.py --connect-addr HOST:PORT` connects to the caller, which waits for it. One
process is one session. What a client cannot say on this link: an end of turn, a trace, metadata.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import pydantic

from loadtest.audio import pcm as samples
from loadtest.audio.pcm import Pcm16
from loadtest.protocols.audio_format import LOWEST_RATE_HZ
from loadtest.protocols.base import (
    CallerOptions,
    CallerProtocol,
    Capabilities,
    EventKind,
    Message,
    OpenRequest,
    SpokenText,
    VoiceEvent,
)
from loadtest.protocols.json_fields import MalformedError
from loadtest.protocols.livekit import messages
from loadtest.protocols.livekit.session import TEXT_COMES_LATE, AgentSession, livekit_settings
from loadtest.protocols.received import malformed
from loadtest.protocols.wire_settings import OF_TEXT, WireSettings, withheld

NAME: Final = "livekit-console"
FRAME_MS: Final = 20
RATE_HZ: Final = 48_000
AGENT_CONNECTS: Final = "the agent connects to the caller, when it is started"


class ConsoleSettings(WireSettings):
    """The `[protocol]` table of a scenario."""

    wait_s: Annotated[float, pydantic.Field(gt=0, le=3600)] = 60.0  # for the agent to connect


class ConsoleCaller(CallerProtocol):
    """One conversation of a caller."""

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError for settings and options that this link does not have."""
        self._settings = livekit_settings(options, NAME, ConsoleSettings, ("token", "headers"))
        self._session = AgentSession()
        self.capabilities = Capabilities(
            input_rate_hz=RATE_HZ,
            frame_ms=FRAME_MS,
            not_observable=withheld((OF_TEXT, TEXT_COMES_LATE), (("connect",), AGENT_CONNECTS)),
            audio_is_text=False,
            transport="tcp-listen",
            framing="length_prefixed",
            turn_controls=frozenset({"server"}),
            names_questions=False,
        )

    # What is sent.

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Return the address to wait for the agent at. The link has no place for the trace."""
        del traceparent
        return OpenRequest(target_url, wait_s=self._settings.wait_s)

    def opened(self) -> Sequence[Message]:
        """Ask for the framework's version and the session's state; with the latter the session is ready."""
        return (messages.request("get_framework_info"), messages.request("get_session_state"))

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return an `audio_input` with one frame."""
        return messages.audio_input(samples.to_bytes(pcm), RATE_HZ)

    def begin_turn(self, spoken: SpokenText) -> Sequence[Message]:
        """Send nothing; the usage that the agent reports from now on is of this turn."""
        del spoken
        self._session.begin_turn()
        return ()

    def played(self, mark: str) -> Sequence[Message]:
        """Confirm to the agent that its flushed audio has played: it waits for that before it continues."""
        return (messages.playback_finished(),) if self._session.reply.played(mark) else ()

    # What arrives.

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        data = message.encode() if isinstance(message, str) else message
        raw_type = "message"
        try:
            kind, fields = messages.decode(data)
            raw_type = kind or raw_type
            return self._received(kind, fields) or (VoiceEvent(EventKind.OTHER, raw_type),)
        except MalformedError as error:
            return malformed(raw_type, error)

    def _received(self, kind: str | None, fields: Any) -> Sequence[VoiceEvent]:
        session = self._session
        match kind:
            case "audio_output":
                return self._audio(kind, fields)
            case "audio_playback_flush":
                return self._flushed(session.reply.flush(kind))
            case "audio_playback_clear":
                return session.reply.clear(kind)
            case "event":
                return session.event(fields)
            case "response":
                return session.response(fields)
            case None:
                return (VoiceEvent(EventKind.UNKNOWN, "message"),)
            case _:
                return ()  # what only a caller sends

    def _audio(self, kind: str, frame: Any) -> Sequence[VoiceEvent]:
        """Decode a piece of the agent's audio. Raises MalformedError for what is not 16-bit mono."""
        pcm, rate_hz = frame.data, frame.sample_rate
        if frame.num_channels != 1 or not LOWEST_RATE_HZ <= rate_hz <= RATE_HZ or len(pcm) % 2:
            shape = f"{len(pcm)} bytes at {rate_hz} Hz with {frame.num_channels} channels"
            raise MalformedError(f"{shape} is not 16-bit mono from {LOWEST_RATE_HZ} to {RATE_HZ} Hz")
        return self._session.audio(kind, pcm, rate_hz) if pcm else ()

    def _flushed(self, events: Sequence[VoiceEvent]) -> Sequence[VoiceEvent]:
        """Answer at once what was flushed before the session was ready: no caller hears it, and the agent waits."""
        if self._session.ready:
            return events
        for event in events:
            if event.text is not None:
                self._send(*self.played(event.text))
        return ()
