"""Replies that do not answer the running turn: a greeting, an afterthought, the rest of an earlier reply. Pure."""

from collections.abc import Collection, Iterable

from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.timeline import Reply
from loadtest.protocols.base import VoiceEvent


class EarlierReplies:
    """Which replies can answer no later turn, and what of them the caller still hears.

    Audio that answers no question is played like any other. As far as is known, each piece of it is over when it has
    been played. What arrives of a reply that was stopped is not played.
    """

    __slots__ = ("_playout", "_stopped", "_unasked", "known")

    def __init__(self, playout: PlayoutBuffer) -> None:
        self._playout = playout
        self._unasked: dict[str, Reply] = {}
        self._stopped: set[str] = set()
        self.known: frozenset[str] = frozenset()  # ids of the replies that began before the next question

    @property
    def heard(self) -> Collection[Reply]:
        """Replies that answer no question and of which audio was played."""
        return self._unasked.values()

    def remember(self, response_ids: Iterable[str]) -> None:
        """Note replies that can answer no later question."""
        self.known |= frozenset(response_ids)

    def mute(self, response_id: str) -> None:
        """Play nothing more of a reply, however late it comes."""
        self._stopped.add(response_id)

    def hear(self, event: VoiceEvent, arrival_perf_ns: int) -> None:
        """Play a piece of audio that answers no question, unless its reply was stopped."""
        key = event.response_id or ""
        self.remember((key,))
        if key in self._stopped:
            return
        reply = self._unasked.setdefault(key, Reply(key, arrival_perf_ns, done_perf_ns=arrival_perf_ns))
        reply.hear(self._playout, event, arrival_perf_ns)
        reply.done_perf_ns = arrival_perf_ns

    def heard_until(self, now_perf_ns: int) -> int:
        """When the last audible sample that has arrived is played; now, where nothing more is to be heard."""
        until_perf_ns = now_perf_ns
        for reply in self.heard:
            if reply.playback is not None and reply.has_more_speech(now_perf_ns):
                until_perf_ns = max(until_perf_ns, reply.playback.last_audio_perf_ns or 0)
        return until_perf_ns
