"""Whether a run goes on, and whether its load generator was what limited it; from what its processes say."""

from collections.abc import Sequence
from typing import Final

from telemetry.model.formatting import count
from telemetry.store.answers import ProcessInfo, StartCounts
from telemetry.store.generator_limit import INVALID_SHARE_LIMIT, too_many_invalid

# A process reports its health every second or so, and a busy machine or a spool may hold that up.
RECENT_S: Final = 30.0


def is_at_work(process: ProcessInfo, now_unix_ns: int | None) -> bool:
    """Whether a process has not ended and was heard of lately; `now_unix_ns` is None where the run is known to be
    over."""
    return now_unix_ns is not None and not process.ended and (now_unix_ns - process.last_seen_unix_ns) / 1e9 <= RECENT_S


def is_under_way(known: Sequence[ProcessInfo], now_unix_ns: int | None) -> bool:
    """Whether any of a run's processes is at work."""
    return any(is_at_work(process, now_unix_ns) for process in known)


def generator_limit(
    known: Sequence[ProcessInfo], turns: tuple[int, int], starts: StartCounts | None, now_unix_ns: int
) -> str | None:
    """Why the figures say nothing about the service, as half a sentence; None where they do. `turns` are the invalid
    ones and all."""
    lost = [process for process in known if not process.ended and not is_at_work(process, now_unix_ns)]
    if lost:
        return (
            f"{count(len(lost), 'process', 'processes')} of the load generator of {len(known)} never announced an end"
        )
    invalid, total = turns
    if too_many_invalid(invalid, total):
        return f"{invalid:,} of {count(total, 'turn')} are invalid"
    if starts is not None and starts.dropped > INVALID_SHARE_LIMIT * starts.planned:
        return f"{starts.dropped:,} of {starts.planned:,} calls that were due never began"
    return None
