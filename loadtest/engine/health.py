"""Health of the worker's engine: shown with a run's figures, and used to judge a turn's validity."""

from bisect import bisect_left
from typing import Final

_LAG_WORTH_KEEPING_NS: Final = 500_000
_MOST_LAGS_KEPT: Final = 4096


class EngineHealth:
    """Counters of one worker process. `take_*` values are the worst since the last look."""

    def __init__(self) -> None:
        self.frames_sent = 0
        self.frames_held_up = 0
        self.calls_failed_to_connect = 0
        self.calls_connected = 0
        self._lateness_worst_ns = 0
        self._lag_worst_ns = 0
        self._unsent_worst_bytes: int | None = None
        self._tick_due_perf_ns: int | None = None  # of the newest tick
        self._earlier_due_perf_ns: int | None = None  # of the tick before it
        self._looked_perf_ns = 0  # nothing is unread that came before: until there was a look, anything may be
        # Lags that no later one has reached, and when they were: each is the worst since the one before it.
        self._lags_ns: list[int] = []
        self._lagged_perf_ns: list[int] = []

    def note_frames(self, lateness_ns: list[int]) -> None:
        """Frames went out, each of them this late."""
        self.frames_sent += len(lateness_ns)
        self.note_lateness(max(lateness_ns, default=0))

    def note_lateness(self, lateness_ns: int) -> None:
        """A frame that was counted before turned out to be this late."""
        if lateness_ns > self._lateness_worst_ns:
            self._lateness_worst_ns = lateness_ns

    def note_held_up(self, waiting_bytes: int) -> None:
        """A socket did not take all of a frame: this many bytes of its caller wait for it now."""
        self.frames_held_up += 1
        self.note_unsent(waiting_bytes)

    def note_unsent(self, unsent_bytes: int) -> None:
        """Record the bytes of one caller that have not left this machine."""
        if self._unsent_worst_bytes is None or unsent_bytes > self._unsent_worst_bytes:
            self._unsent_worst_bytes = unsent_bytes

    def note_tick(self, lag_ns: int, now_perf_ns: int) -> None:
        """A tick was served this late."""
        self._earlier_due_perf_ns, self._tick_due_perf_ns = self._tick_due_perf_ns, now_perf_ns - lag_ns
        if lag_ns > self._lag_worst_ns:
            self._lag_worst_ns = lag_ns
        if lag_ns > _LAG_WORTH_KEEPING_NS:
            self._keep_lag(lag_ns, now_perf_ns)

    def _keep_lag(self, lag_ns: int, now_perf_ns: int) -> None:
        lags_ns, moments_perf_ns = self._lags_ns, self._lagged_perf_ns
        while lags_ns and lags_ns[-1] <= lag_ns:
            lags_ns.pop()
            moments_perf_ns.pop()
        if len(lags_ns) >= _MOST_LAGS_KEPT:
            del lags_ns[0], moments_perf_ns[0]
        lags_ns.append(lag_ns)
        moments_perf_ns.append(now_perf_ns)

    def longest_unseen_ns(self, seen_perf_ns: int) -> int:
        """Return how long at the most what the program sees now can have waited: since the tick before the newest was
        due.

        The loop looked when that tick was due, or after it. What came later may be seen only now: after a pause, the
        newest tick is served before what came in the pause, however late that is.
        """
        due_perf_ns = self._tick_due_perf_ns if self._earlier_due_perf_ns is None else self._earlier_due_perf_ns
        return 0 if due_perf_ns is None else max(0, seen_perf_ns - due_perf_ns)

    def note_looked(self, looked_perf_ns: int) -> None:
        """Nothing is unread, on any socket that the kernel stamps, that came before this moment."""
        self._looked_perf_ns = max(self._looked_perf_ns, looked_perf_ns)

    def unread_before_ns(self, stamp_perf_ns: int) -> int:
        """Return how long before its stamp the first of what was read together can have come at the most."""
        return max(0, stamp_perf_ns - self._looked_perf_ns)

    def worst_loop_lag_since(self, moment_perf_ns: int) -> int:
        """The worst lag of the loop since a moment; lags under half a millisecond count as none."""
        first = bisect_left(self._lagged_perf_ns, moment_perf_ns)
        return self._lags_ns[first] if first < len(self._lags_ns) else 0

    def take_lateness_worst_ns(self) -> int:
        """The worst frame lateness since the last look."""
        worst, self._lateness_worst_ns = self._lateness_worst_ns, 0
        return worst

    def take_lag_worst_ns(self) -> int:
        """The worst loop lag since the last look."""
        worst, self._lag_worst_ns = self._lag_worst_ns, 0
        return worst

    def take_unsent_worst_bytes(self) -> int | None:
        """The most that one caller had unsent since the last look; None where nobody looked."""
        worst, self._unsent_worst_bytes = self._unsent_worst_bytes, None
        return worst
