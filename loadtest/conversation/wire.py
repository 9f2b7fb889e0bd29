"""Properties of a wire that a conversation needs: pure data."""

from dataclasses import dataclass
from typing import Final

from loadtest.protocols.base import Capabilities

# The metric that a wire can show only if it says when it closed the caller's turn.
_CLOSES_TURNS: Final = "endpointing"
# The metrics that a wire can show only if it sends transcripts, or the text of its answers.
_OF_TRANSCRIPTS: Final = "asr_final_latency"
_OF_TEXT: Final = "llm_first_token_latency"
# The metric that every wire with replies in audio shows.
_OF_AUDIO: Final = "voice_to_voice"


@dataclass(frozen=True, slots=True)
class WireTraits:
    """Signals that a wire shows: the end of a reply and of a question, and what was said."""

    closes_replies: bool = True  # a message says that a reply is complete; else it ends by silence
    closes_questions: bool = True  # a message says that the endpoint has closed the caller's turn
    speaks: bool = True  # replies have audio; else a turn's answer is text, or the transcript itself
    shows_cuts: bool = True  # a message says that the endpoint breaks a reply off
    speech_stops_replies: bool = False  # that the endpoint hears speech asks to play no more of its reply
    names_questions: bool = True  # names of what the caller said are the endpoint's own
    transcribes: bool = True  # what the caller said is sent as text
    sends_text: bool = True  # the language model's text is sent

    @classmethod
    def of(cls, capabilities: Capabilities) -> "WireTraits":
        """The traits of a wire with these capabilities."""
        return cls(
            closes_replies=capabilities.reply_end == "event",
            closes_questions=_CLOSES_TURNS not in capabilities.not_observable,
            speaks=_OF_AUDIO not in capabilities.not_observable,
            shows_cuts=capabilities.shows_cuts,
            speech_stops_replies=capabilities.speech_stops_replies,
            names_questions=capabilities.names_questions,
            transcribes=_OF_TRANSCRIPTS not in capabilities.not_observable,
            sends_text=_OF_TEXT not in capabilities.not_observable,
        )


EVERY_EVENT: Final = WireTraits()
