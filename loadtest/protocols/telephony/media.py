"""An agent's message that comes most: a piece of audio, with the members that the providers' references name."""

from typing import Any, Final

import msgspec

from loadtest.protocols.exact_messages import Count, ExactMessage


class Media(ExactMessage):
    """The audio alone: its format is the call's."""

    payload: bytes

    @property
    def declared(self) -> dict[str, object]:
        """What the message states of the audio's format, by the names on the wire."""
        return {}


class StatedMedia(Media, rename="camel"):
    """Audio whose message states its format."""

    content_type: str
    sample_rate: Count | str

    @property
    def declared(self) -> dict[str, object]:
        """What the message states of the audio's format, by the names on the wire."""
        return {"contentType": self.content_type, "sampleRate": self.sample_rate}


class MediaMessage(ExactMessage):
    """A message with audio. The names of its members are Telnyx's; agents may leave out the stream's id."""

    event: str
    media: Media
    stream_id: str | None = None


def _named(stream_key: str, media: type[Media] = Media) -> Any:
    """Return the same message as another provider has it."""
    members: list[Any] = [("event", str), ("media", media), ("stream_id", str | None, None)]
    return msgspec.defstruct("MediaMessage", members, bases=(ExactMessage,), rename={"stream_id": stream_key})


# By the wire's name.
MEDIA: Final[dict[str, msgspec.json.Decoder[MediaMessage]]] = {
    "twilio": msgspec.json.Decoder(_named("streamSid")),
    "telnyx": msgspec.json.Decoder(MediaMessage),
    "plivo": msgspec.json.Decoder(_named("streamId", StatedMedia)),
    "exotel": msgspec.json.Decoder(_named("stream_sid")),
}
