"""The transcript of what the caller says, from the pieces in which Gemini Live sends it.

Models differ in three ways. Some send pieces that nothing marks as the last one: what came until the reply was
complete is then the transcript, as of its last piece. Some mark the last piece, or the only one, as `finished`. Some
send interim transcripts of all that was heard so far, and then the transcript at once.
"""

from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.cumulative_partials import CumulativePartials


class InputTranscript:
    """The transcript of the caller's question under way. Each has a name of its own, `item_id`."""

    def __init__(self) -> None:
        self._count = 1
        self._text = ""
        self._left: VoiceEvent | None = None  # of the question before, whose reply the caller has interrupted
        self._closed = False  # the reply is complete: what still comes is the rest of its question
        self._interim = False
        self._partials = CumulativePartials()

    @property
    def item_id(self) -> str:
        """The name of the question."""
        return f"question-{self._count}"

    def begin(self, raw_type: str, *, replying: bool) -> None:
        """The caller begins another question, perhaps while the reply to the one before goes on."""
        if self._text and replying:
            self._left = self._final(raw_type, self._text, dated_by_partial=True)
        self._reset()

    def take_left(self) -> list[VoiceEvent]:
        """The transcript of a question that ended unmarked because the caller began another one."""
        if self._left is None:
            return []
        left, self._left = self._left, None
        return [left]

    def interim(self, raw_type: str, whole: str) -> list[VoiceEvent]:
        """All that was heard so far; it replaces what was heard before."""
        added = self._partials.addition(self.item_id, whole)
        self._interim = self._interim or bool(whole)
        kind = EventKind.ASR_PARTIAL if added else EventKind.OTHER
        return [VoiceEvent(kind, raw_type, item_id=self.item_id, text=added)]

    def piece(self, raw_type: str, text: str, *, finished: bool) -> list[VoiceEvent]:
        """A piece that follows the pieces before it, or the whole transcript after interim ones."""
        self._text += text
        if (finished or self._interim or self._closed) and self._text:
            event = self._final(raw_type, self._text)
            self._reset(closed=self._closed)
            return [event]
        kind = EventKind.ASR_PARTIAL if text else EventKind.OTHER
        return [VoiceEvent(kind, raw_type, item_id=self.item_id, text=text)]

    def answered(self, raw_type: str) -> list[VoiceEvent]:
        """The reply to the question is complete: pieces that nothing has marked as the last are the transcript."""
        events = [self._final(raw_type, self._text, dated_by_partial=True)] if self._text else []
        self._reset(closed=True)
        return events

    def _final(self, raw_type: str, text: str, *, dated_by_partial: bool = False) -> VoiceEvent:
        return VoiceEvent(
            EventKind.ASR_FINAL,
            raw_type,
            item_id=self.item_id,
            text=text.strip(),
            dated_by_partial=dated_by_partial,
        )

    def _reset(self, *, closed: bool = False) -> None:
        self._count += 1
        self._text, self._closed, self._interim = "", closed, False
