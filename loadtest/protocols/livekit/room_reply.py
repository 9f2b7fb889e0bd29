"""Replies in a room: RTP carries silence all the time, and a pause of the agent is heard as such. Pure."""

from typing import Any, Final

from loadtest.audio.idle_line import is_audible
from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.livekit.messages import SPEAKING, THINKING
from loadtest.protocols.livekit.reply import AgentReply

# Audio and states come on different ways: the first audio of a reply may overtake that the agent speaks.
_ANSWERING: Final = frozenset({THINKING, SPEAKING})


class RoomReply(AgentReply):
    """The reply under way, if any. Its audio begins with the first packet that is not silent.

    Without the messages of the agent's session, all that is known of its end is that the agent listens again: an
    interruption cannot be told from the end, and a pause ends the reply.
    """

    def __init__(self) -> None:
        super().__init__()
        self.adds_messages = False  # the agent's session tells what was added to the conversation

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
            self._pushed = False  # nothing will be told of its end but this
        return super().state_changed(raw_type, state)
