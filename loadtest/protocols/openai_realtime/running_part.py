"""The content part whose audio comes now, and the event that comes most: one more piece of it."""

from typing import Final, Literal

import msgspec

from loadtest.protocols.base import Message
from loadtest.protocols.exact_messages import Count, ExactMessage, ExactReader


class AudioDelta(ExactMessage):
    """`response.output_audio.delta`, or its name in the beta."""

    type: Literal["response.output_audio.delta", "response.audio.delta"]
    delta: bytes
    event_id: str | None = None
    response_id: str | None = None
    item_id: str | None = None
    output_index: Count | None = None
    content_index: Count | None = None


_AUDIO_DELTAS: Final = msgspec.json.Decoder(AudioDelta)


class RunningPart:
    """The part that the previous audio delta belongs to, as sent and as resolved; `part` is None where there is none.

    It ends when a response begins or ends: what was resolved for one response is not used for another one.
    """

    __slots__ = ("_reader", "ids", "part")

    def __init__(self) -> None:
        # The event's name on the wire, response_id, item_id and content_index.
        self.part: tuple[object, ...] | None = None
        self.ids: tuple[str | None, str | None] = (None, None)  # of the response and of the item
        self._reader = ExactReader(_AUDIO_DELTAS)

    def continued_by(self, message: Message) -> AudioDelta | None:
        """Return an audio delta of this part whose members are the usual ones, None for any other message."""
        if self.part is None:
            return None
        delta = self._reader.read(message)
        if delta is None or (delta.type, delta.response_id, delta.item_id, delta.content_index) != self.part:
            return None
        return delta
