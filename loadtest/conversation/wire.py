"""What of a wire a conversation has to know: pure data."""

from dataclasses import dataclass
from typing import Final

from loadtest.protocols.base import Capabilities

# The metric that a wire can show only if it says when it closed the caller's turn.
_CLOSES_TURNS: Final = "endpointing"
# The metric that every wire with replies in audio shows.
_OF_AUDIO: Final = "voice_to_voice"


@dataclass(frozen=True, slots=True)
class WireTraits:
    """How the end of a reply, and of a question, shows on a wire."""

    closes_replies: bool = True  # a message says that a reply is complete; else it ends by silence
    closes_questions: bool = True  # a message says that the endpoint has closed the caller's turn
    speaks: bool = True  # replies have audio; else a turn's answer is text, or the transcript itself

    @classmethod
    def of(cls, capabilities: Capabilities) -> "WireTraits":
        """The traits of a wire with these capabilities."""
        return cls(
            closes_replies=capabilities.reply_end == "event",
            closes_questions=_CLOSES_TURNS not in capabilities.not_observable,
            speaks=_OF_AUDIO not in capabilities.not_observable,
        )


EVERY_EVENT: Final = WireTraits()
