"""A tick of the engine on a manual clock: what is due is sent, lags are noted, and one call's error is its own."""

from collections.abc import Iterator

import pytest

from loadtest.engine.call import Call
from loadtest.engine.clock import Clocks
from loadtest.engine.engine import Engine
from loadtest.engine.health import EngineHealth
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from tests.unit.loadtest.conversation.world import MS, make_plan
from tests.unit.loadtest.engine.test_engine_call import FRAME, Wire, WiredTransport


class Worker:
    """An engine whose ticks and clock are moved by hand, with calls on fake connections."""

    def __init__(self) -> None:
        self.now = 1000 * FRAME
        self.engine = Engine(
            frame_ns=FRAME, onset_preset="rms-10ms", clocks=Clocks(lambda: self.now, lambda: 10**18 + self.now)
        )
        self.engine._ticker._watcher.stop()
        self.wires: list[Wire] = []

    def add(self) -> Call:
        """Add a call whose caller thinks for ten seconds."""
        protocol, wire = registry.make_caller("openai-realtime", CallerOptions()), Wire()
        call = Call(
            self.engine, make_plan(think_ms=10_000), protocol, WiredTransport(wire, self.engine, protocol), "rms-10ms"
        )
        call.open(1.0)
        self.engine._calls.add(call)
        assert call.transport is not None
        self.engine._begin_audio(call, call.transport)
        call.begin(self.now)
        self.wires.append(wire)
        return call

    def tick(self, late_ns: int = 0) -> None:
        """Serve the next tick, so late."""
        self.now = self.engine._tick_due_perf_ns + late_ns
        self.engine._tick()

    def run(self, ns: int) -> None:
        """Serve ticks on time."""
        until = self.now + ns
        while self.engine._tick_due_perf_ns <= until:
            self.tick()


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.engine._calls.clear()
    made.engine.close()


@pytest.mark.parametrize(("callers", "ticks"), [(0, 500), (1, 500), (45, 500), (160, 1000)])
def test_every_caller_gets_its_frames_by_fewest_ticks(worker: Worker, callers: int, ticks: int) -> None:
    for _ in range(callers):
        worker.add()
    worker.tick()  # from here on, as often as these callers are due
    for wire in worker.wires:
        wire.sent.clear()
    served: list[int] = []
    collect = worker.engine._hub.collect
    worker.engine._hub.collect = lambda now: (served.append(now), collect(now))[1]
    worker.run(1000 * MS)
    assert len(served) in (ticks, ticks + 1)
    assert {len(wire.sent) for wire in worker.wires} <= {50}
    assert worker.engine.health.take_lateness_worst_ns() == 0


def test_a_late_tick_is_a_lag_by_the_schedule_of_the_ticks(worker: Worker) -> None:
    worker.add()
    worker.tick()
    worker.tick()
    assert worker.engine.health.take_lag_worst_ns() == 0
    worker.tick(late_ns=5 * MS)
    assert worker.engine.health.take_lag_worst_ns() == 5 * MS
    worker.tick()
    assert worker.engine.health.take_lag_worst_ns() == 0, "the schedule is kept"


def test_joining_or_leaving_caller_hides_no_lag(worker: Worker) -> None:
    calls = [worker.add() for _ in range(30)]
    worker.tick()
    due = worker.engine._tick_due_perf_ns
    worker.now = due + 7 * MS
    late = worker.add()
    worker.engine._tick()
    assert worker.engine.health.take_lag_worst_ns() == 7 * MS
    worker.now = worker.engine._tick_due_perf_ns + 3 * MS
    worker.engine.hang_up(late, "done")
    worker.engine._tick()
    assert worker.engine.health.take_lag_worst_ns() == 3 * MS
    assert len(calls) == worker.engine._hub.streams


def test_internal_error_while_sending_ends_only_its_call(worker: Worker) -> None:
    calls = [worker.add() for _ in range(3 * 10)]
    worker.run(100 * MS)
    broken, sound = calls[10], [call for call in calls if call is not calls[10]]

    def fail(frame: bytes) -> bool:
        raise RuntimeError(f"cannot send {len(frame)} bytes")

    assert broken.transport is not None
    broken.transport.send_frame = fail
    before = [len(wire.sent) for wire in worker.wires]
    worker.run(20 * MS)
    assert broken.ended
    assert not any(call.ended for call in sound)
    gone = calls.index(broken)
    assert [
        len(wire.sent) - sent for at, (wire, sent) in enumerate(zip(worker.wires, before, strict=True)) if at != gone
    ] == [1] * len(sound)
    exchange = broken.exchanges.get_nowait()
    assert exchange.reason == "the load generator failed: RuntimeError: cannot send 7 bytes"


def test_looks_count_for_the_health_that_the_engine_has_now(worker: Worker) -> None:
    """Else messages that share a stamp would be stated as exact."""
    before, worker.engine.health = worker.engine.health, EngineHealth()
    assert worker.engine.health.unread_before_ns(worker.now) == worker.now, "unknown: since the clock began"
    worker.tick()
    assert worker.engine.health.unread_before_ns(worker.now + 7) == 7
    assert before.unread_before_ns(worker.now) > 0
