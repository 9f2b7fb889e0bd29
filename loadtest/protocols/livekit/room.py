"""The caller's side of a room of a LiveKit server: its microphone, the agent's audio, and what that says of itself.

What is said here of rooms was never run against a server: none can be had where the tests run. The agent's session
(`lk.agent.session`) is the same as on the console link, which is.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import pydantic

from loadtest.audio import pcm as samples
from loadtest.audio.idle_line import is_audible
from loadtest.audio.pcm import Pcm16
from loadtest.errors import UsageError
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
from loadtest.protocols.error_objects import violation
from loadtest.protocols.failure import Failure
from loadtest.protocols.json_fields import MalformedError
from loadtest.protocols.livekit import messages
from loadtest.protocols.livekit.messages import SPEAKING, THINKING
from loadtest.protocols.livekit.session import TEXT_COMES_LATE, AgentReply, AgentSession, livekit_settings
from loadtest.protocols.received import malformed
from loadtest.protocols.room_items import AgentState, JoinRoom, RoomItem, RoomJoined, RoomTranscript
from loadtest.protocols.webrtc_items import PeerAudio
from loadtest.protocols.wire_settings import OF_TEXT, WireSettings, withheld

# Audio and states come on different ways: the first audio of a reply may overtake that the agent speaks.
_ANSWERING: Final = frozenset({THINKING, SPEAKING})


class RoomReply(AgentReply):
    """The reply under way, if any. Its audio begins with the first packet that is not silent.

    Without the messages of the agent's session, all that is known of its end is that the agent listens again: an
    interruption cannot be distinguished from the end, and a pause ends the reply.
    """

    def __init__(self) -> None:
        super().__init__()
        self.adds_messages = False  # the agent's session sends what was added to the conversation

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """Account for one packet; silence before the first audible one of a reply is the idle line."""
        in_reply = self.is_open and "audio" in self._carried
        if not in_reply and not (is_audible(pcm) and (self.is_open or self._agent_state in _ANSWERING)):
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        return super().audio(raw_type, pcm, rate_hz)

    def message_added(self, raw_type: str, message: Any) -> list[VoiceEvent]:
        """Account for what the agent adds to the conversation: it was cleared where it reads as interrupted."""
        self.adds_messages = True
        self._cleared = self._cleared or bool(message.interrupted)
        return super().message_added(raw_type, message)

    def state_changed(self, raw_type: str, state: int) -> list[VoiceEvent]:
        """Account for another state, which the room and the agent's session both tell."""
        if state == self._agent_state:
            return []
        if not self.adds_messages:
            self._pushed = False  # nothing else will report its end
        return super().state_changed(raw_type, state)


NAME: Final = "livekit"
FRAME_MS: Final = 20
RATE_HZ: Final = 48_000
SILENCE: Final = "RTP carries silence all the time, so the silence of a reply looks like that of the line"
NO_SECRET: Final = (
    f"{NAME}: set VOICEPROBE_TOKEN to the secret of the API key, "
    "or, without the option api_key, to a token for the room"
)
_STATES: Final[Mapping[str, int]] = {
    "initializing": messages.INITIALIZING,
    "idle": messages.IDLE,
    "listening": messages.LISTENING,
    "thinking": messages.THINKING,
    "speaking": messages.SPEAKING,
}
_Name = Annotated[str, pydantic.Field(min_length=1, max_length=200)]


class RoomSettings(WireSettings):
    """The `[protocol]` table of a scenario."""

    api_key: _Name | None = None
    room: _Name | None = None  # None: a room for each call
    identity: _Name | None = None  # None: one for each call
    agent_name: _Name | None = None  # requested by name; None: the server chooses


class RoomCaller(CallerProtocol):
    """One conversation of a caller."""

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError for settings and options that this wire does not have."""
        self._options = options
        self._settings = livekit_settings(options, NAME, RoomSettings)
        self._reply = RoomReply()
        self._session = AgentSession(self._reply)
        self._session.start()
        self._join: JoinRoom | None = None
        self.capabilities = Capabilities(
            input_rate_hz=RATE_HZ,
            frame_ms=FRAME_MS,
            not_observable=withheld((OF_TEXT, TEXT_COMES_LATE), (("leading_silence",), SILENCE)),
            shows_cuts=False,  # only where the agent's session says what it adds to the conversation
            audio_is_text=False,
            transport="livekit-room",
            turn_controls=frozenset({"server"}),
        )

    # What is sent.

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Put the trace where an agent can read it. Raises UsageError without a secret."""
        if self._options.token is None:
            raise UsageError(NO_SECRET)
        settings = self._settings
        own = uuid.uuid4().hex if traceparent is None else traceparent.split("-")[1]
        trace = {} if traceparent is None else {"traceparent": traceparent}
        carried = msgspec.json.encode(trace).decode()
        self._join = JoinRoom(
            url=target_url,
            secret=self._options.token,
            api_key=settings.api_key,
            room=settings.room or f"voiceprobe-{own}",
            identity=settings.identity or f"caller-{own}",
            attributes=trace,
            metadata=carried,
            agent_name=settings.agent_name,
            agent_metadata=carried,
        )
        return OpenRequest(target_url)

    def opened(self) -> Sequence[Outgoing]:
        """Join the room."""
        return () if self._join is None else (self._join,)

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return the samples: the SDK encodes them."""
        return samples.to_bytes(pcm)

    def begin_turn(self, spoken: SpokenText) -> Sequence[Outgoing]:
        """Send nothing; the usage that the agent reports from now on is of this turn."""
        del spoken
        self._session.begin_turn()
        return ()

    # What arrives.

    def receive(self, message: Message | PeerAudio | RoomItem) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        if isinstance(message, PeerAudio):
            if message.rate_hz != RATE_HZ or len(message.pcm) % 2:
                return (violation("rtp", f"audio at {message.rate_hz} Hz is not 16-bit at {RATE_HZ} Hz", "bad_audio"),)
            return self._session.audio("rtp", message.pcm, message.rate_hz)
        if isinstance(message, str | bytes):
            return self._session_events(message.encode() if isinstance(message, str) else message)
        return self._room_events(message) or (VoiceEvent(EventKind.OTHER, type(message).__name__),)

    def _room_events(self, item: RoomItem) -> Sequence[VoiceEvent]:
        session = self._session
        if isinstance(item, AgentState):
            state = _STATES.get(item.state)
            if state is None:
                return (VoiceEvent(EventKind.UNKNOWN, "lk.agent.state"),)
            return session.agent_state("lk.agent.state", state)
        if isinstance(item, RoomTranscript):
            segment_id = item.segment_id or None
            return session.transcript("lk.transcription", item.text, is_final=item.is_final, segment_id=segment_id)
        if isinstance(item, RoomJoined):
            return ()
        sentence, failure = "the agent has left the room", Failure("close_code", "agent_left")
        return (VoiceEvent(EventKind.ERROR, "participant_disconnected", message=sentence, fatal=True, failure=failure),)

    def _session_events(self, data: bytes) -> Sequence[VoiceEvent]:
        """Decode a message of the agent's session, which every participant of the room gets."""
        try:
            kind, fields = messages.decode(data)
        except MalformedError as error:
            return malformed("lk.agent.session", error)
        if kind == "event":
            self._reply.adds_messages = True
            return self._session.event(fields)
        return (VoiceEvent(EventKind.UNKNOWN if kind is None else EventKind.OTHER, kind or "message"),)
