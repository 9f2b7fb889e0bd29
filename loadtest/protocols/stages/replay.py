"""Transcripts that were recorded earlier, given out at their recorded times. Pure: time is a parameter."""

from loadtest.protocols.base import SpokenText
from loadtest.protocols.stages.recorded_partials import RecordedUtterance

_NS_PER_MS = 1_000_000


class PartialsReplay:
    """The transcripts of one turn. Time is that of the caller's audio, from the first frame of the turn on."""

    def __init__(self) -> None:
        self._left: list[tuple[int, str]] = []
        self._passed_ns = 0
        self._final = ""
        self._ended = True

    def begin(self, spoken: SpokenText, recorded: RecordedUtterance | None) -> str:
        """Begin a turn: `spoken.lead_ns` of audio precede its first speech sample.

        Returns what the caller's words are taken for: the final transcript that was recorded, or the words themselves.
        """
        heard = [] if recorded is None else sorted((*recorded.partials, recorded.final))
        self._left = [(spoken.lead_ns + round(at_ms * _NS_PER_MS), text) for at_ms, text in heard if text.strip()]
        self._passed_ns = 0
        self._final = spoken.text if recorded is None else recorded.final[1]
        self._ended = False
        return self._final

    @property
    def is_over(self) -> bool:
        """Whether the caller has finished and everything has been recognized."""
        return self._ended and not self._left

    def advance(self, passed_ns: int) -> str | None:
        """Let time pass; return the newest text that was recognized by now, if any, or the whole text at its time."""
        if not self._left:
            return None
        self._passed_ns += passed_ns
        newest: str | None = None
        while self._left and self._left[0][0] < self._passed_ns:
            newest = self._left.pop(0)[1]
        if not self._left and self._ended:
            return self._final
        return newest

    def end(self) -> bool:
        """Note that the caller has finished; return whether everything has been recognized by now."""
        self._ended = True
        return self.is_over
