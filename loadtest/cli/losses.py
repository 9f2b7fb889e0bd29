"""Which of a run's processes went without a goodbye, from what they said of themselves."""

from loadtest.reports.facts import LostProcess
from telemetry.store.reader import StoreReader


def lost_processes(reader: StoreReader, run_id: str, asked: int) -> tuple[LostProcess, ...]:
    """The processes that began and never said that they had ended, and those of `asked` that never began. Ask when
    the run is over and its telemetry delivered."""
    known = reader.processes(run_id)
    lost = [
        LostProcess(
            worker=process.worker,
            after_s=None
            if process.began_unix_ns is None
            else max(0.0, (process.last_seen_unix_ns - process.began_unix_ns) / 1e9),
            calls_cut=process.calls_in_flight,
        )
        for process in known
        if not process.ended
    ]
    return (*lost, *(LostProcess() for _ in range(asked - len(known))))
