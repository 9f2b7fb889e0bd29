"""One reply of a cascade: its text as it comes, the sentences still to be spoken, and whether it is complete. Pure."""

from collections import deque
from dataclasses import dataclass, field

from loadtest.protocols.base import Content
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
    waiting: deque[str] = field(default_factory=deque[str])  # sentences that nobody speaks yet
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
