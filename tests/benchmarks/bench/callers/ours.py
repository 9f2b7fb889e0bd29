"""Our engine under load. Only its counters are extended: each frame's lateness is noted, at its own cost."""

# isort: off
from tests.benchmarks.bench.callers.our_callers import OurCallers, make_worker  # first: it patches the process

# isort: on
import gc

import gevent

from loadtest.engine.health import EngineHealth
from tests.benchmarks.bench.messages import IN_SAMPLES, RESPONSE_ID
from tests.benchmarks.bench.window import CONNECT_S, Window, orders


class RecordingHealth(EngineHealth):
    """The engine's own counters, and each frame's lateness besides."""

    def __init__(self, window: Window) -> None:
        super().__init__()
        self._note = window.lateness_ns.extend

    def note_frames(self, lateness_ns: list[int]) -> None:
        """Frames went out, each of them this late."""
        super().note_frames(lateness_ns)
        self._note(lateness_ns)


def heard(callers: OurCallers) -> int:
    """How many messages of reply audio have been decoded and played so far, of all calls."""
    samples = 0
    for call in callers.calls():
        exchange = call.conversation.exchange
        reply = exchange.timeline.replies.get(RESPONSE_ID) if exchange is not None else None
        if reply is not None and reply.playback is not None:
            samples += reply.playback.samples
    return samples // IN_SAMPLES


def main() -> None:
    """Connect, warm up, measure, and print what it cost."""
    given = orders()
    worker = make_worker(given.url, given.ca_file)
    engine, callers = worker.engine, OurCallers(worker)
    window = Window(given, lambda: heard(callers))
    engine.health = RecordingHealth(window)
    window.connecting(lambda: engine.health.calls_connected)
    callers.start([given.url] * given.callers)
    gc.collect()
    gc.freeze()
    window.begin()
    while True:
        gevent.sleep(CONNECT_S)  # until the window ends the process


if __name__ == "__main__":
    main()
