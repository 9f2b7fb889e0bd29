"""Derives replies from what Gemini Live sends: the wire has no responses, only content and where it ends.

A reply is all content from the first piece, or from a tool call, up to `generationComplete`. `turnComplete` comes
later, when the service assumes that the reply has been played, and ends only what nothing else has ended. An
interrupted reply has no `generationComplete`. A turn that is completed without any content is a reply that holds
nothing.
"""

from typing import Final

from loadtest.protocols.base import Content, EventKind, VoiceEvent
from loadtest.protocols.failure import Failure, code_of

INTERRUPTED: Final = "interrupted"
# The service waits for the caller: it has nothing to say yet, and nothing failed.
_WAITS: Final = "NEED_MORE_INPUT"
_UNSPECIFIED: Final = "TURN_COMPLETE_REASON_UNSPECIFIED"


class LiveReply:
    """The reply under way, if any. Every method returns the events that a member of a message makes."""

    def __init__(self) -> None:
        self.is_open = False
        self._carried: set[Content] = set()
        self._owes_response = False  # a tool was called, and no content has come since
        self._ended = False  # a reply has ended, and the turn has not been completed since

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """A piece of speech."""
        return [*self._content(raw_type, "audio"), VoiceEvent(EventKind.AUDIO, raw_type, audio=pcm, rate_hz=rate_hz)]

    def text(self, raw_type: str, text: str, kind: EventKind) -> list[VoiceEvent]:
        """A piece of the answer's text: `kind` is OTHER where it is no part of what is measured."""
        return [*self._content(raw_type, "text"), VoiceEvent(kind, raw_type, text=text)]

    def reasoning(self, raw_type: str, text: str) -> list[VoiceEvent]:
        """A piece of what the model thinks before it answers."""
        return [*self._begin(raw_type), VoiceEvent(EventKind.REASONING_TEXT, raw_type, text=text)]

    def tool_called(self, raw_type: str) -> list[VoiceEvent]:
        """The model calls a tool; the answer comes when it has the result."""
        began = self._begin(raw_type)
        self._carried.add("tool_call")
        self._owes_response = True
        return began

    def tool_cancelled(self) -> None:
        """The model no longer waits for the results of its tools."""
        self._owes_response = False

    def interrupted(self, raw_type: str) -> list[VoiceEvent]:
        """The caller's speech stops the reply, or what is still played of one that has been generated."""
        events = [VoiceEvent(EventKind.CLEAR, raw_type)]
        if self.is_open:
            events.append(self._done(raw_type, "cancelled", INTERRUPTED))
        self._ended = True
        return events

    def generation_complete(self, raw_type: str) -> list[VoiceEvent]:
        """All of the reply has been sent."""
        if not self.is_open:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._ended = True
        return [self._done(raw_type, "completed", None)]

    def turn_complete(self, raw_type: str, reason: str | None, *, goes_on: bool) -> list[VoiceEvent]:
        """The service's turn is over; with `goes_on`, only a part of it, and more follows without another question."""
        before, self._ended = self._ended, False
        reason = None if reason == _UNSPECIFIED else reason
        if not self.is_open and before and not goes_on:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        began = self._begin(raw_type)
        self._owes_response = self._owes_response or goes_on
        if reason is None:
            return [*began, self._done(raw_type, "completed", None)]
        spoke = bool(self._carried & {"audio", "text"})
        return [*began, self._done(raw_type, "incomplete" if spoke or reason == _WAITS else "failed", reason)]

    def _content(self, raw_type: str, what: Content) -> list[VoiceEvent]:
        began = self._begin(raw_type)
        self._owes_response = False
        self._carried.add(what)
        return began

    def _begin(self, raw_type: str) -> list[VoiceEvent]:
        if self.is_open:
            return []
        self.is_open = True
        return [VoiceEvent(EventKind.RESPONSE_STARTED, raw_type)]

    def _done(self, raw_type: str, status: str, why: str | None) -> VoiceEvent:
        event = VoiceEvent(
            EventKind.RESPONSE_DONE,
            raw_type,
            status=status,
            carried=frozenset(self._carried),
            owes_response=self._owes_response and status == "completed",
            message=why,
            failure=Failure("endpoint_error", code_of(why)) if status == "failed" else None,
        )
        self.is_open = self._owes_response = False
        self._carried = set()
        return event
