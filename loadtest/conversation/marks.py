"""Marks: the endpoint asks to be told when what it has sent so far has been played. Pure."""

from collections import deque

from loadtest.conversation.playout import PlayoutBuffer


class PendingMarks:
    """The marks that are not answered yet, in the order in which they came.

    A mark is due when the audio that came before it has been played out, in whichever reply that was. Where that audio
    is not played to its end, it is due when playback stops.
    """

    __slots__ = ("_pending", "_playout")

    def __init__(self, playout: PlayoutBuffer) -> None:
        self._playout = playout
        self._pending: deque[tuple[int, str]] = deque()  # when it is due, and its name

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def due_perf_ns(self) -> int | None:
        """When the next one is due; None where none is pending."""
        return self._pending[0][0] if self._pending else None

    def add(self, name: str, arrival_perf_ns: int) -> None:
        """A mark arrived."""
        self._pending.append((max(arrival_perf_ns, self._playout.playing_until_perf_ns), name))

    def note_stop(self, now_perf_ns: int) -> None:
        """Playback was stopped: what waits for audio that is no longer played is due when the rest has been."""
        latest = max(now_perf_ns, self._playout.playing_until_perf_ns)
        self._pending = deque((min(due_perf_ns, latest), name) for due_perf_ns, name in self._pending)

    def take_due(self, now_perf_ns: int) -> list[str]:
        """The names of those that are due by now; they are pending no longer."""
        names: list[str] = []
        while self._pending and self._pending[0][0] <= now_perf_ns:
            names.append(self._pending.popleft()[1])
        return names

    def take_all(self) -> list[str]:
        """The names of all; none is pending any longer."""
        names = [name for _, name in self._pending]
        self._pending.clear()
        return names
