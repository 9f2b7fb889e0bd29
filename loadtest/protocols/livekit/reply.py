"""Derives replies from what a LiveKit agent says of itself: the wire has no responses. Pure.

A reply begins with its first audio, or when the agent says that it speaks. It is over when the agent adds what it has
said to the conversation, with how it ended and with its own latencies. That comes after playback: the agent waits until
it learns that everything it has flushed has been played. The state that the agent takes then says whether another
response follows. Where nothing is added (it may be switched off), the state alone ends the reply.

An agent that hears speech while it speaks takes the state `listening` at once, but only pauses: it may go on. On the
console link the pause is not sent, so that the audio plays on until the agent asks to clear it.
"""

from typing import Any

from loadtest.protocols.base import Content, EventKind, VoiceEvent
from loadtest.protocols.livekit.messages import SPEAKING, THINKING
from loadtest.protocols.livekit.metrics import latencies_ns

INTERRUPTED = "interrupted"


class AgentReply:
    """The reply under way, if any. Every method returns the events that its cause makes."""

    def __init__(self) -> None:
        self._count = 0
        self._flushes = 0
        self._agent_state = -1
        self._pushed = False  # audio has come that the agent has not flushed
        self._unplayed: set[str] = set()  # flushes whose playback has not been reported to the agent
        self._forget()
        self.is_open = False

    def _forget(self) -> None:
        self._carried: set[Content] = set()
        self._spoken = False  # the agent has said that it speaks
        self._cleared = False
        self._ended: tuple[str, str | None] | None = None  # how it ended, while the state that follows is awaited

    @property
    def response_id(self) -> str:
        """The name of the reply; the wire has none."""
        return f"reply-{self._count}"

    def _begin(self, raw_type: str) -> list[VoiceEvent]:
        if self.is_open and self._ended is None:
            return []
        before = self._done(raw_type) if self.is_open else []
        self._count += 1
        self.is_open = True
        return [*before, VoiceEvent(EventKind.RESPONSE_STARTED, raw_type, response_id=self.response_id)]

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """A piece of what the agent says."""
        began = self._begin(raw_type)
        self._pushed = True
        self._carried.add("audio")
        piece = VoiceEvent(EventKind.AUDIO, raw_type, response_id=self.response_id, audio=pcm, rate_hz=rate_hz)
        return [*began, piece] if began else [piece]

    def flush(self, raw_type: str) -> list[VoiceEvent]:
        """The agent has sent all of a piece and requests a report when it is played.

        Where nothing was sent the agent does not wait, and an answer could be taken for that to the next flush.
        """
        if not self._pushed:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._pushed = False
        self._flushes += 1
        mark = f"flush-{self._flushes}"
        self._unplayed.add(mark)
        return [VoiceEvent(EventKind.MARK, raw_type, text=mark)]

    def played(self, mark: str) -> bool:
        """Note that what was flushed was played, or is no longer played; return whether the agent needs a report."""
        if mark not in self._unplayed:
            return False
        self._unplayed.discard(mark)
        return True

    def clear(self, raw_type: str) -> list[VoiceEvent]:
        """The agent asks to play nothing more."""
        if not self.is_open or self._cleared or "audio" not in self._carried:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._cleared = True
        return [VoiceEvent(EventKind.CLEAR, raw_type, response_id=self.response_id)]

    def message_added(self, raw_type: str, message: Any) -> list[VoiceEvent]:
        """The agent adds what it has said to the conversation."""
        service_ns = latencies_ns(message.metrics)
        kind = EventKind.SERVICE_REPORT if service_ns else EventKind.OTHER
        if not self.is_open:
            return [VoiceEvent(kind, raw_type, service_ns=service_ns)]
        report = VoiceEvent(kind, raw_type, response_id=self.response_id, service_ns=service_ns)
        self._carried.add("text")
        # A synthesizer that failed also makes it read as interrupted, and then nothing is cleared.
        status = ("cancelled" if self._cleared else "incomplete") if message.interrupted else "completed"
        self._ended = status, INTERRUPTED if message.interrupted else None
        awaits_state = status == "completed" and self._agent_state == SPEAKING
        return [report] if awaits_state else [report, *self._done(raw_type)]

    def state_changed(self, raw_type: str, state: int) -> list[VoiceEvent]:
        """The agent takes another state."""
        self._agent_state = state
        if state == SPEAKING:
            began = self._begin(raw_type)
            if self._spoken:
                return began
            self._spoken = True
            return [*began, VoiceEvent(EventKind.SPEECH_SYNTHESIS_STARTED, raw_type, response_id=self.response_id)]
        if not self.is_open:
            return []
        paused = "audio" in self._carried and not self._cleared and (self._pushed or bool(self._unplayed))
        if self._ended is None and paused:
            return []
        return self._done(raw_type, owes_response=state == THINKING)

    def _done(self, raw_type: str, *, owes_response: bool = False) -> list[VoiceEvent]:
        status, why = self._ended or (("cancelled", INTERRUPTED) if self._cleared else ("completed", None))
        event = VoiceEvent(
            EventKind.RESPONSE_DONE,
            raw_type,
            response_id=self.response_id,
            status=status,
            carried=frozenset(self._carried),
            owes_response=owes_response and status == "completed",
            message=why,
        )
        self.is_open = False
        self._forget()
        return [event]
