"""Replies over a line that is never silent: RTP carries silence between replies, and the end of speech behind events.

The bot says by RTVI when a reply begins and ends; its audio comes on another way, a little later. A reply's audio
begins with the first packet that is not silent, and a reply that the bot has ended or broken off goes on until the
line is silent: that is what a caller hears. Nothing can be cleared, for nothing is sent ahead.
"""

from typing import Final

from loadtest.audio.idle_line import is_audible
from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.pipecat.rtvi_reply import RtviReply, Status

# How much of a reply's audio may follow its end before that counts all the same: bots may play background sound.
LONGEST_REST_MS: Final = 500


class RtpReply(RtviReply):
    """The reply under way, if any, on a line whose audio never stops."""

    def __init__(self) -> None:
        super().__init__()
        self._audible = False  # the newest packet
        self._held: tuple[str, Status] | None = None  # how the reply ended whose last audio is still coming
        self._rest_ms = 0.0  # what has come of it since

    def audio(self, raw_type: str, pcm: bytes, rate_hz: int) -> list[VoiceEvent]:
        """Account for one packet; silence before the first audible one of a reply is the idle line."""
        self._audible = is_audible(pcm)
        if self._held is not None:
            self._rest_ms += len(pcm) / 2 / rate_hz * 1000
            if not self._audible or self._rest_ms > LONGEST_REST_MS:
                return self._release()
        if not self._open or not (self._audible or "audio" in self._carried):
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        return super().audio(raw_type, pcm, rate_hz)

    def quiet(self, raw_type: str) -> list[VoiceEvent]:
        """Account for a line on which no packet comes."""
        self._audible = False
        return self._release() or [VoiceEvent(EventKind.OTHER, raw_type)]

    def llm_started(self, raw_type: str) -> list[VoiceEvent]:
        """Begin another reply: what is left of the one before it is over."""
        return [*self._release(), *super().llm_started(raw_type)]

    def synthesis_started(self, raw_type: str) -> list[VoiceEvent]:
        """Begin another reply, or the speech of one: what is left of the one before it is over."""
        return [*self._release(), *super().synthesis_started(raw_type)]

    def speaking_started(self, raw_type: str) -> list[VoiceEvent]:
        """Account for the bot's output, which begins: what is left of the reply before it is over."""
        return [*self._release(), *super().speaking_started(raw_type)]

    def text(self, raw_type: str, text: str) -> list[VoiceEvent]:
        """Account for a piece of text; a reply that was ended has no more of it."""
        if self._held is not None:
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        return super().text(raw_type, text)

    def _close(self, raw_type: str, status: Status) -> list[VoiceEvent]:
        """End the reply once the line is silent."""
        if self._held is not None:
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        if self._audible and "audio" in self._carried:
            self._held = (raw_type, status)
            self._rest_ms = 0.0
            return [VoiceEvent(EventKind.OTHER, raw_type)]
        return super()._close(raw_type, status)

    def _release(self) -> list[VoiceEvent]:
        """End the reply that was ended before; without one, nothing."""
        if self._held is None:
            return []
        held, self._held = self._held, None
        return super()._close(*held)
