"""Audio that answers no question: a greeting, the rest of an earlier reply, an afterthought. Pure."""

from collections.abc import Collection

from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.timeline import Reply
from loadtest.protocols.base import VoiceEvent


class Strays:
    """What of it occupies a caller's speaker. As far as is known, each piece is over when it has been played."""

    def __init__(self, playout: PlayoutBuffer) -> None:
        self._playout = playout
        self._replies: dict[str, Reply] = {}

    @property
    def replies(self) -> Collection[Reply]:
        """Every reply of which some came."""
        return self._replies.values()

    def hear(self, key: str, event: VoiceEvent, arrival_perf_ns: int) -> None:
        """Play a piece of one."""
        stray = self._replies.setdefault(key, Reply(key, arrival_perf_ns, done_perf_ns=arrival_perf_ns))
        stray.hear(self._playout, event, arrival_perf_ns)
        stray.done_perf_ns = arrival_perf_ns

    def heard_until(self, now_perf_ns: int) -> int:
        """When the last of what has arrived and is audible is played; now, where nothing more is to be heard."""
        until_perf_ns = now_perf_ns
        for reply in self.replies:
            if reply.playback is not None and reply.has_more_to_say(now_perf_ns):
                until_perf_ns = max(until_perf_ns, reply.playback.last_audio_perf_ns or 0)
        return until_perf_ns
