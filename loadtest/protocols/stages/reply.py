"""One reply of a cascade, which its caller names: its text, the sentences still to be spoken, its events. Pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from loadtest.protocols.base import Content, EventKind, VoiceEvent
from loadtest.protocols.failure import Failure
from loadtest.protocols.sentences import SentenceSplitter


@dataclass(slots=True)
class StageReply:
    """The result so far of one request to the language model, or of one text to be spoken."""

    response_id: str
    text: str = ""
    started: bool = False  # RESPONSE_STARTED has been sent
    words_over: bool = False  # no more text comes
    speaking: str | None = None  # the request whose audio comes now
    spoken: int = 0  # how many requests for speech have been made
    waiting: deque[str] = field(default_factory=deque[str])  # sentences that are not spoken yet
    carried: set[Content] = field(default_factory=set[Content])
    usage: dict[str, int] = field(default_factory=dict[str, int])
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    why: str | None = None
    splitter: SentenceSplitter = field(default_factory=SentenceSplitter)

    def add(self, text: str) -> None:
        """Take a piece of text; sentences that it completes wait to be spoken."""
        self.text += text
        self.carried.add("text")
        self.waiting.extend(self.splitter.feed(text))

    def end_words(self) -> None:
        """Note that the text is complete; what is left of it is the last sentence."""
        self.words_over = True
        rest = self.splitter.end()
        if rest is not None:
            self.waiting.append(rest)

    def next_text(self) -> str | None:
        """Take the text that is to be spoken now; None while another one is being spoken, or where none waits."""
        if self.speaking is not None or not self.waiting:
            return None
        self.spoken += 1
        return self.waiting.popleft()

    @property
    def complete(self) -> bool:
        """Whether nothing more of it can come."""
        return self.words_over and self.speaking is None and not self.waiting

    def start(self, raw_type: str) -> list[VoiceEvent]:
        """The first sign of it begins it."""
        if self.started:
            return []
        self.started = True
        return [self.event(EventKind.RESPONSE_STARTED, raw_type, metadata=dict(self.metadata))]

    def event(self, kind: EventKind, raw_type: str, **fields: Any) -> VoiceEvent:
        """Return an event of this reply."""
        return VoiceEvent(kind, raw_type, self.response_id, **fields)

    def done(
        self, raw_type: str, status: str, message: str | None = None, failure: Failure | None = None
    ) -> VoiceEvent:
        """End it."""
        return self.event(
            EventKind.RESPONSE_DONE,
            raw_type,
            status=status,
            carried=frozenset(self.carried),
            metadata=dict(self.metadata),
            usage=dict(self.usage) if status in ("completed", "incomplete") else {},
            message=message,
            failure=failure,
        )

    def finish(self, raw_type: str, status: str = "completed", message: str | None = None) -> list[VoiceEvent]:
        """End it when it is complete, and its audio."""
        heard = [self.event(EventKind.AUDIO_DONE, raw_type)] if "audio" in self.carried else []
        return [*heard, self.done(raw_type, status, message)]
