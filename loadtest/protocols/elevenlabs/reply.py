"""Follows the agent's reply: which text and audio are part of it, what an interruption makes void, and its end.

The wire has no responses. Text comes in parts (`agent_chat_response_part`), whole (`agent_response`) or both ways. An
interruption names an `event_id`: what comes late with an id up to it belongs to what was interrupted, and is not heard.
"""

from typing import Final

from loadtest.protocols.base import Content, EventKind, VoiceEvent

INTERRUPTED: Final = "interrupted"


class ConvaiReply:
    """The reply under way, if any. `closes` says whether the agent sends `agent_response_complete`."""

    def __init__(self, *, closes: bool) -> None:
        self._closes = closes
        self._open = False
        self._carried: set[Content] = set()
        self._interrupted_id = 0
        self._streamed = False  # text of the reply has come in parts, and not yet whole
        self._whole_id: int | None = None  # of the last text that came whole and not in parts before
        self._tool_called = False  # and the agent has said nothing since

    def is_void(self, event_id: int | None) -> bool:
        """Whether something with this id was interrupted before it came."""
        return event_id is not None and event_id <= self._interrupted_id

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """A piece of audio."""
        self._open = True
        self._carried.add("audio")
        return [VoiceEvent(EventKind.AUDIO, raw_type, audio=pcm, rate_hz=rate_hz)]

    def part(self, raw_type: str, text: str, event_id: int | None) -> list[VoiceEvent]:
        """A piece of text."""
        comes_again = event_id is not None and event_id == self._whole_id
        if not text or comes_again or self.is_void(event_id):
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        self._streamed = True
        return self._text(EventKind.LLM_TEXT, raw_type, text)

    def whole(self, raw_type: str, text: str, event_id: int | None) -> list[VoiceEvent]:
        """All text of an answer, with the first of its audio; it may have come in parts before."""
        if not text or self.is_void(event_id):
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        streamed, self._streamed = self._streamed, False
        if streamed:
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        self._whole_id = event_id
        return self._text(EventKind.SPOKEN_TEXT, raw_type, text)

    def tool_called(self) -> None:
        """The agent waits for the result of a tool before it says more."""
        self._tool_called = True

    def complete(self, raw_type: str, event_id: int | None) -> list[VoiceEvent]:
        """The agent has sent all of its reply."""
        if not self._closes or not self._open or self.is_void(event_id):
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        return [self._done(raw_type, "completed", None)]

    def interrupted(self, raw_type: str, event_id: int) -> list[VoiceEvent]:
        """The caller spoke into the reply; its audio may have come long ago, and still be playing."""
        self._interrupted_id = event_id
        self._streamed = False
        events = [VoiceEvent(EventKind.CLEAR, raw_type)]
        if self._closes and self._open:
            events.append(self._done(raw_type, "cancelled", INTERRUPTED))
        return events

    def _text(self, kind: EventKind, raw_type: str, text: str) -> list[VoiceEvent]:
        self._open = True
        self._tool_called = False
        self._carried.add("text")
        return [VoiceEvent(kind, raw_type, text=text)]

    def _done(self, raw_type: str, status: str, why: str | None) -> VoiceEvent:
        owes = self._tool_called and status == "completed"
        if self._tool_called:
            self._carried.add("tool_call")
        carried = frozenset(self._carried)
        self._open = self._tool_called = False
        self._carried = set()
        return VoiceEvent(
            EventKind.RESPONSE_DONE, raw_type, status=status, carried=carried, owes_response=owes, message=why
        )
