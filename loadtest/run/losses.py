"""Which of a run's processes went without a goodbye, and which are still at work, from what they said of themselves."""

from collections.abc import Sequence
from typing import Final

from loadtest.reports.run_info import LostProcess
from telemetry.store.answers import ProcessInfo

# A process reports its health every second or so, and a busy machine or a spool may hold that up.
RECENT_S: Final = 30.0


def is_under_way(known: Sequence[ProcessInfo], now_unix_ns: int | None) -> bool:
    """Whether a process that has not ended was heard of lately. `now_unix_ns` is None where the run is known to be
    over."""
    return any(_is_at_work(process, now_unix_ns) for process in known)


def lost_processes(known: Sequence[ProcessInfo], asked: int, now_unix_ns: int | None = None) -> tuple[LostProcess, ...]:
    """The processes that began and never said that they had ended, and, of a run that is over, those of `asked` that
    never began. Ask when the telemetry of the run is delivered; while it is under way, those at work are not lost."""
    lost = [
        LostProcess(
            worker=process.worker,
            after_s=None
            if process.began_unix_ns is None
            else max(0.0, (process.last_seen_unix_ns - process.began_unix_ns) / 1e9),
            calls_cut=process.calls_in_flight,
        )
        for process in known
        if not process.ended and not _is_at_work(process, now_unix_ns)
    ]
    never_began = 0 if is_under_way(known, now_unix_ns) else asked - len(known)
    return (*lost, *(LostProcess() for _ in range(never_began)))


def _is_at_work(process: ProcessInfo, now_unix_ns: int | None) -> bool:
    return now_unix_ns is not None and not process.ended and (now_unix_ns - process.last_seen_unix_ns) / 1e9 <= RECENT_S
