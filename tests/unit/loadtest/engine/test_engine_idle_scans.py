"""Kept audio is scanned between two ticks, and delays none of them: the work is counted under a clock of its own."""

import numpy as np
import pytest

from loadtest.audio.deferred_span import SLICE_SAMPLES, DeferredSpan, ScanQueue
from loadtest.audio.onset import AudibleSpan
from loadtest.engine.clock import Clocks
from loadtest.engine.engine import MOST_SLICES_PER_TICK, Engine, scan_while_idle
from loadtest.engine.timing_wheel import TICK_NS

US = 1_000
SLICE_NS = 35 * US
REPLY_S = 30
PIECE_S = 15
RATE_HZ = 24_000


class CostlyClock:
    """A clock on which each sample that is scanned takes its time."""

    def __init__(self) -> None:
        self.now_perf_ns = 0
        self.scanned = 0

    def perf_ns(self) -> int:
        return self.now_perf_ns

    def spend(self, samples: int) -> None:
        self.scanned += samples
        self.now_perf_ns += samples * SLICE_NS // SLICE_SAMPLES


class CostlySpan(AudibleSpan):
    """A span whose scanning takes time on that clock; what it finds does not matter here."""

    def __init__(self, clock: CostlyClock) -> None:
        super().__init__("rms-10ms", RATE_HZ)
        self._clock = clock

    @property
    def is_first_settled(self) -> bool:
        return True

    def feed(self, pcm: np.ndarray) -> None:
        self._clock.spend(len(pcm))


def _long_replies(calls: int) -> tuple[CostlyClock, ScanQueue]:
    """Every call has received a long reply, in pieces of a length that is kept, before the clock begins to run."""
    clock, queue = CostlyClock(), ScanQueue()
    for _ in range(calls):
        span = DeferredSpan(CostlySpan(clock), queue)
        span.add(bytes(2 * PIECE_S * RATE_HZ))
        span.add(bytes(2 * (REPLY_S - PIECE_S) * RATE_HZ))
    clock.now_perf_ns = 0
    return clock, queue


@pytest.mark.slow
def test_a_thousand_long_replies_delay_no_tick_by_more_than_a_slice() -> None:
    clock, queue = _long_replies(1_000)
    arrived = clock.scanned
    ticks = 0
    while queue:
        due = ticks * TICK_NS
        clock.now_perf_ns = max(clock.now_perf_ns, due)
        assert clock.now_perf_ns - due <= SLICE_NS
        before = clock.scanned
        clock.now_perf_ns += ticks % 101 * 10 * US  # what else the tick has to do: from nothing to all of its time
        scan_while_idle(queue, clock.perf_ns, due + TICK_NS)
        assert clock.scanned - before <= MOST_SLICES_PER_TICK * SLICE_SAMPLES
        ticks += 1
    assert clock.scanned + 1_000 * SLICE_SAMPLES > 1_000 * REPLY_S * RATE_HZ > 2 * arrived
    assert ticks * TICK_NS < REPLY_S * 1_000_000_000, "while the replies still play"


@pytest.mark.parametrize(("left_ns", "slices"), [(-5, 0), (0, 0), (1, 1), (SLICE_NS + 1, 2), (TICK_NS, 4)])
def test_no_slice_begins_after_the_next_tick_is_due(left_ns: int, slices: int) -> None:
    clock, queue = _long_replies(8)
    before, clock.now_perf_ns = clock.scanned, 7 * TICK_NS
    scan_while_idle(queue, clock.perf_ns, 7 * TICK_NS + left_ns)
    assert clock.scanned - before == slices * SLICE_SAMPLES


def test_without_kept_audio_not_even_the_clock_is_read() -> None:
    scan_while_idle(ScanQueue(), lambda: pytest.fail("the clock was read"), 1)


def test_the_engine_scans_at_the_end_of_its_tick() -> None:
    clock = CostlyClock()
    engine = Engine(frame_ns=20 * TICK_NS, onset_preset="rms-10ms", clocks=Clocks(clock.perf_ns, clock.perf_ns))
    try:
        DeferredSpan(CostlySpan(clock), engine.scans).add(bytes(2 * 2 * RATE_HZ))
        before, clock.now_perf_ns = clock.scanned, 5 * TICK_NS
        engine._tick()  # pyright: ignore[reportPrivateUsage]
        assert clock.scanned - before == SLICE_SAMPLES
    finally:
        engine.close()
