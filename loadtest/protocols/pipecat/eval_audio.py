"""The message of Pipecat's evaluation transport that comes most: a piece of the bot's audio."""

from typing import Final, Literal

import msgspec

from loadtest.protocols.exact_messages import Count, ExactMessage


class EvalAudioData(ExactMessage, rename="camel"):
    """The audio, and the rate that it states."""

    audio: bytes
    sample_rate: Count | None = None


class EvalAudio(ExactMessage):
    """The message."""

    label: Literal["rtvi-ai"]
    type: Literal["eval-bot-audio"]
    data: EvalAudioData


EVAL_AUDIO_MESSAGES: Final = msgspec.json.Decoder(EvalAudio)
