"""Derives replies from what an RTVI bot says of itself: the wire has no responses.

A reply is everything from the first sign of it (the language model starts, synthesis starts, or audible audio comes) to
the point where the bot has stopped speaking and neither the language model nor the synthesizer is still at work. A
pause between two sentences also makes the bot send `bot-stopped-speaking`. An interruption ends the reply at once.
"""

from typing import Final, Literal

from loadtest.protocols.base import Content, EventKind, VoiceEvent

INTERRUPTED: Final = "interrupted"
Status = Literal["completed", "cancelled"]


class RtviReply:
    """The reply under way, if any. Every method returns the events that the message makes."""

    def __init__(self) -> None:
        self._open = False
        self._carried: set[Content] = set()
        self._generating = False  # the language model
        self._synthesizing = False
        self._speaking = False
        self._spoke = False  # and stopped at least once
        self._owes_response = False  # a tool was called, and the language model has not run since
        self._announces_generation = False  # the bot sends bot-llm-started
        self._stale = False  # what comes now was under way when the reply was interrupted

    def llm_started(self, raw_type: str) -> list[VoiceEvent]:
        """The language model starts."""
        self._announces_generation = True
        self._generating, self._owes_response = True, False
        return self._begin(raw_type)

    def llm_stopped(self, raw_type: str) -> list[VoiceEvent]:
        """The language model has produced its last token."""
        self._generating = False
        return self._end(raw_type)

    def synthesis_started(self, raw_type: str) -> list[VoiceEvent]:
        """The synthesizer starts."""
        self._synthesizing = True
        return self._begin(raw_type)

    def synthesis_stopped(self, raw_type: str) -> list[VoiceEvent]:
        """The synthesizer has produced its last sample."""
        self._synthesizing = False
        return self._end(raw_type)

    def speaking_started(self, raw_type: str) -> list[VoiceEvent]:
        """The bot's output begins; audio of it may have come before this."""
        began = self._begin(raw_type) if not self._open else []
        resumed = self._spoke
        self._speaking = True
        return [*began, VoiceEvent(EventKind.OTHER if resumed else EventKind.SPEECH_SYNTHESIS_STARTED, raw_type)]

    def speaking_stopped(self, raw_type: str) -> list[VoiceEvent]:
        """The bot's output pauses or ends; after an interruption it ends what has been closed already."""
        if not self._speaking:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._speaking, self._spoke = False, True
        return self._end(raw_type)

    def tool_called(self, raw_type: str) -> list[VoiceEvent]:
        """The language model calls a tool: it will run again with the result."""
        self._owes_response = True
        if self._open:
            self._carried.add("tool_call")
        return [VoiceEvent(EventKind.OTHER, raw_type)]

    def text(self, raw_type: str, text: str) -> list[VoiceEvent]:
        """A piece of the answer's text; late pieces of an interrupted answer are no part of any."""
        if not text or (not self._open and (self._announces_generation or self._stale)):
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        began = [] if self._open else self._begin(raw_type)
        self._carried.add("text")
        return [*began, VoiceEvent(EventKind.LLM_TEXT, raw_type, text=text)]

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """A piece of the bot's output; silence outside a reply is only the idle line."""
        if not self._open and (self._stale or pcm.count(0) == len(pcm)):
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        began = [] if self._open else self._begin(raw_type)
        self._carried.add("audio")
        return [*began, VoiceEvent(EventKind.AUDIO, raw_type, audio=pcm, rate_hz=rate_hz)]

    def interrupted(self, raw_type: str) -> list[VoiceEvent]:
        """The bot drops what it was doing. It says so at the start of every user turn, also while it is silent."""
        if not self._open:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        events = self._close(raw_type, "cancelled")
        self._stale = True
        return events

    def turn_closed(self) -> None:
        """The caller's turn is closed: whatever comes from now on is not of an earlier reply."""
        self._stale = False

    def _begin(self, raw_type: str) -> list[VoiceEvent]:
        self._stale = False
        if self._open:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        self._open = True
        return [VoiceEvent(EventKind.RESPONSE_STARTED, raw_type)]

    def _end(self, raw_type: str) -> list[VoiceEvent]:
        """Close the reply if the bot has said all of it."""
        at_work = self._generating or self._synthesizing or self._speaking
        if not self._open or at_work or not self._spoke:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        return self._close(raw_type, "completed")

    def _close(self, raw_type: str, status: Status) -> list[VoiceEvent]:
        """End the reply: as completed, or as cancelled by the caller's interruption."""
        cancelled = status == "cancelled"
        events = [VoiceEvent(EventKind.CLEAR, raw_type)] if cancelled and "audio" in self._carried else []
        return [*events, self._done(raw_type, status, INTERRUPTED if cancelled else None)]

    def _done(self, raw_type: str, status: Status, why: str | None) -> VoiceEvent:
        event = VoiceEvent(
            EventKind.RESPONSE_DONE,
            raw_type,
            status=status,
            carried=frozenset(self._carried),
            owes_response=self._owes_response and status == "completed",
            message=why,
        )
        self._open = self._generating = self._synthesizing = self._speaking = self._spoke = self._owes_response = False
        self._carried = set()
        return event
