"""A LiveKit agent as its recorded sessions have it (tests/fixtures/livekit), over the console link.

Protobuf is written by hand here, field by field: neither the codec under test nor its library is asked.
"""

import struct
from typing import Any, ClassVar

from loadtest.protocols.base import CallerOptions, Outgoing
from loadtest.protocols.room_items import AgentLeft, AgentState, RoomJoined
from loadtest.protocols.transports.byte_streams import LengthPrefixed
from loadtest.protocols.webrtc_items import PeerAudio
from tests.unit.loadtest.protocols.contract.scripts.pipecat import field
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Refused, Stage, WireScript

INITIALIZING, IDLE, LISTENING, THINKING, SPEAKING = range(5)
USER_SPEAKING, USER_LISTENING = range(2)
USER, ASSISTANT = 2, 3
GET_STATE = b"get_session_state"


def seconds(number: int, value: float) -> bytes:
    """A field of type double."""
    return bytes([number << 3 | 1]) + struct.pack("<d", value)


def event(number: int, fields: bytes = b"") -> bytes:
    """AgentSessionMessage{event}: when it was created, and one of the events."""
    return field(3, field(1, field(1, 1_795_381_595)) + field(number, fields))


def agent_state(old: int, new: int) -> bytes:
    """Proto3 leaves out what is 0."""
    return event(10, (field(1, old) if old else b"") + (field(2, new) if new else b""))


def user_state(old: int, new: int) -> bytes:
    return event(11, (field(1, old) if old else b"") + (field(2, new) if new else b""))


def item(role: int, text: str, metrics: bytes, *, interrupted: bool = False) -> bytes:
    """conversation_item_added{item{message}}."""
    message = field(1, b"item_1") + field(2, role) + field(3, field(1, text.encode()))
    message += (field(4, 1) if interrupted else b"") + field(7, metrics)
    return event(12, field(1, field(1, message)))


def audio(pcm: bytes, rate_hz: int = 48_000, channels: int = 1) -> bytes:
    """AgentSessionMessage{audio_output}."""
    return field(2, field(1, pcm) + field(2, rate_hz) + field(3, channels) + field(4, len(pcm) // 2))


FLUSH, CLEAR = field(6, b""), field(7, b"")
ASSISTANT_METRICS = seconds(6, 0.08) + seconds(7, 0.06) + seconds(8, 0.57)
USER_METRICS = seconds(3, 0.1) + seconds(4, 0.5) + seconds(5, 0.00002)


class ConsoleScript(WireScript):
    """A process of livekit-agents at the other end of the link."""

    url: ClassVar[str] = "tcp-listen://127.0.0.1:7777"
    reply_rate_hz: ClassVar[int] = 48_000
    order: ClassVar[tuple[Stage, ...]] = (
        "speech_started",
        "partial",
        "final",
        "speech_stopped",
        "reply_started",
        "audio",
        "synthesis_started",
        "reply_done",
    )
    first_after_speech: ClassVar[Stage] = "final"

    def __init__(self) -> None:
        self._state = LISTENING

    def _to(self, state: int) -> bytes:
        old, self._state = self._state, state
        return agent_state(old, state)

    def greets(self) -> Messages:
        handoff = event(12, field(1, field(4, field(1, b"item_0"))))
        return [handoff, agent_state(INITIALIZING, LISTENING)]

    def answers(self, sent: Outgoing) -> Messages:
        assert isinstance(sent, bytes)
        if b"get_framework_info" in sent:
            info = field(1, b"python") + field(2, b"1.8.9")
            return [field(5, field(1, b"get_framework_info") + field(11, info))]
        if GET_STATE in sent:
            state = field(1, LISTENING) + field(2, USER_LISTENING) + field(3, b"default_agent")
            return [field(5, field(1, GET_STATE) + field(8, state))]
        return ()

    def speech_started(self) -> Messages:
        return [user_state(USER_LISTENING, USER_SPEAKING)]

    def _transcript(self, text: str, *, final: bool) -> bytes:
        return event(13, field(1, text.encode()) + (field(2, 1) if final else b""))

    def partial(self, text: str) -> Messages:
        return [self._transcript(text, final=False)]

    def final(self, text: str) -> Messages:
        return [self._transcript(text, final=True)]

    def speech_stopped(self) -> Messages:
        committed = item(USER, "turn the light on", USER_METRICS)
        return [user_state(USER_SPEAKING, USER_LISTENING), committed, self._to(THINKING)]

    def audio(self, pcm: bytes) -> Messages:
        middle = len(pcm) // 4 * 2
        return [audio(pcm[:middle]), audio(pcm[middle:])]

    def synthesis_started(self) -> Messages:
        return [self._to(SPEAKING)]

    def reply_done(self) -> Messages:
        """The agent adds what it said when its flushed audio is confirmed as played; here, at once."""
        return [FLUSH, item(ASSISTANT, "It is on.", ASSISTANT_METRICS), self._to(LISTENING)]

    def broken_off(self) -> Messages:
        started = user_state(USER_LISTENING, USER_SPEAKING)
        added = item(ASSISTANT, "It is", ASSISTANT_METRICS, interrupted=True)
        return [started, self._to(LISTENING), CLEAR, added]

    def clear(self) -> Messages:
        return [CLEAR]

    def service_report(self) -> Messages:
        llm = field(1, b"unknown") + field(3, 40) + field(4, 32) + field(11, 6)
        tts = field(5, 30) + seconds(6, 1.6)
        usage = field(1, field(1, llm)) + field(1, field(2, tts))
        return [event(17, field(1, usage)), event(16, field(1, 1) + seconds(3, 0.25))]

    def error(self) -> Messages:
        return [event(15, field(1, b"type='llm_error' timestamp=1.0 label='a' error=E('no') recoverable=True"))]

    def unknown(self) -> Messages:
        return [b"", field(9, b"a message of another release"), event(99, b"x"), field(3, b"")]

    def malformed(self) -> Messages:
        wrong = [audio(b"\1"), audio(b"\1\0", 0), audio(b"\1\0", 2**31), audio(b"\1\0", channels=2)]
        return [b"\xff", field(2, b"\xff"), field(3, b"\xff\xff"), *wrong]

    def encoded(self, messages: Messages) -> bytes:
        return b"".join(len(message).to_bytes(4) + message for message in messages)

    def decoder(self) -> Any:
        return LengthPrefixed()


class RoomScript(ConsoleScript):
    """An agent in a room: its session as on the console link, its audio as frames out of the SDK's jitter buffer.

    After LiveKit's documents and its packages: no server was there to record one.
    """

    options: ClassVar[CallerOptions] = CallerOptions(token="a token")
    url: ClassVar[str] = "wss://project.livekit.cloud"

    def greets(self) -> Messages:
        return [RoomJoined(), AgentState("initializing"), self.silence(), AgentState("listening"), self.silence()]

    def answers(self, sent: Outgoing) -> Messages:
        del sent
        return ()

    def silence(self) -> PeerAudio:
        """Return the audio that arrives all the time."""
        return PeerAudio(b"\1\0\0\0\xff\xff" * (48 * 20 // 3), 48_000)

    def audio(self, pcm: bytes) -> Messages:
        return [PeerAudio(pcm[begin : begin + 960], 48_000) for begin in range(0, len(pcm), 960)]

    def reply_done(self) -> Messages:
        ended = super().reply_done()[1:]
        return [*ended, AgentState("listening"), self.silence()]

    def broken_off(self) -> Messages:
        return [message for message in super().broken_off() if message != CLEAR]

    def clear(self) -> None:
        """Do nothing: in a room the agent just stops."""

    def refusal(self) -> Refused:
        return Refused([AgentLeft()], "close_code", "agent_left")

    def fatal_error(self) -> Refused:
        return self.refusal()

    def unknown(self) -> Messages:
        return [*super().unknown(), AgentState("dancing")]

    def malformed(self) -> Messages:
        return [b"\xff", field(3, b"\xff\xff"), PeerAudio(b"\1", 48_000), PeerAudio(b"\1\0", 44_100)]


SCRIPTS = {"livekit-console": ConsoleScript, "livekit": RoomScript}
