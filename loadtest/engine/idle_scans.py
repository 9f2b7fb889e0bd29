"""Scans the audio that calls have kept, in the time between two ticks that nothing else needs."""

from collections.abc import Callable
from typing import Final

from loadtest.audio.deferred_span import ScanQueue

# Of SLICE_SAMPLES each: all that 4,000 callers hear in real time at 24 kHz, in 0.15 ms of each tick.
MOST_SLICES_PER_TICK: Final = 4


def scan_while_idle(queue: ScanQueue, perf_ns: Callable[[], int], next_tick_perf_ns: int) -> None:
    """Scan a few slices, none of which begins once the next tick is due.

    So a tick is delayed by the scanning of SLICE_SAMPLES at the most.
    """
    for _ in range(MOST_SLICES_PER_TICK):
        if not queue or perf_ns() >= next_tick_perf_ns:
            return
        queue.scan_slice()
