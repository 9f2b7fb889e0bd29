"""The agent's message that comes most: a piece of audio, with or without the times of its letters."""

from typing import Final, Literal

import msgspec

from loadtest.protocols.exact_messages import Count, ExactMessage


class Alignment(ExactMessage):
    """When each letter is spoken, which no caller needs."""

    chars: list[str]
    char_start_times_ms: list[Count]
    char_durations_ms: list[Count]


class AudioEvent(ExactMessage):
    """The content of the message."""

    audio_base_64: bytes
    event_id: Count
    alignment: Alignment | None = None


class AudioMessage(ExactMessage):
    """The message."""

    type: Literal["audio"]
    audio_event: AudioEvent


AUDIO_MESSAGES: Final = msgspec.json.Decoder(AudioMessage)
