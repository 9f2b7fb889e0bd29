"""Which of a run's processes went without a goodbye, and which are still at work, from what they said of themselves."""

from collections.abc import Sequence

from loadtest.reports.run_info import LostProcess
from telemetry.store.answers import ProcessInfo
from telemetry.store.run_state import is_at_work, is_under_way

__all__ = ["is_under_way", "lost_processes"]


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
        if not process.ended and not is_at_work(process, now_unix_ns)
    ]
    never_began = 0 if is_under_way(known, now_unix_ns) else asked - len(known)
    return (*lost, *(LostProcess() for _ in range(never_began)))
