"""The content part whose audio comes now, and the event that comes most: one more piece of it."""

from typing import Final, Literal

import msgspec

from loadtest.protocols.base import EventKind, Message, VoiceEvent
from loadtest.protocols.exact_messages import Count, ExactMessage, ExactReader
from loadtest.protocols.openai_realtime.playback import ReplyAudio
from loadtest.protocols.openai_realtime.responses import Responses


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
# Looking a member up in its Enum costs more than a name of this module.
_AUDIO: Final = EventKind.AUDIO


class RunningPart:
    """The part that the previous audio delta belongs to, as sent and as resolved; `part` is None where there is none.

    It ends when a response begins or ends: what was resolved for one response is not used for another one.

    Deltas of whole samples that follow one another are accounted for together, by `settle`, before anything else is
    looked at.
    """

    __slots__ = ("_rate_hz", "_reader", "_reply", "_responses", "_samples", "ids", "part")

    def __init__(self, responses: Responses, reply: ReplyAudio) -> None:
        self._responses, self._reply = responses, reply
        self._rate_hz: int | None = None  # of the deltas that are accounted for together; None where there are none
        self._samples = 0  # that have not been accounted for
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

    def event(self, delta: AudioDelta) -> VoiceEvent | None:
        """Return the event of a delta of whole samples, to be accounted for later; None for any other one."""
        rate_hz, audio = self._rate_hz, delta.delta
        size = len(audio)
        if rate_hz is None or not size or size % 2:
            return None
        self._samples += size // 2
        response_id, item_id = self.ids
        return VoiceEvent(_AUDIO, delta.type, response_id, item_id, None, False, audio, rate_hz)

    def account_together(self, rate_hz: int | None) -> None:
        """From now on, account for deltas together: for PCM of this rate; None for any other encoding."""
        self._rate_hz = None if self._reply.has_half_sample else rate_hz

    def settle(self) -> None:
        """Account for what has come."""
        samples, rate_hz = self._samples, self._rate_hz
        self._samples, self._rate_hz = 0, None
        if samples and rate_hz is not None:
            note_audio(self._responses, self._reply, self.ids, (samples, rate_hz))


def note_audio(
    responses: Responses, reply: ReplyAudio, ids: tuple[str | None, str | None], length: tuple[int, int]
) -> None:
    """Account for audio of a response and an item: its length is a number of samples and their rate in Hz."""
    response_id, item_id = ids
    responses.carry(response_id, "audio")
    # Late audio of a finished response is not part of the current reply.
    if responses.generating is None or not responses.is_done(response_id):
        reply.add(response_id, item_id, *length)
