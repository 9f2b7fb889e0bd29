"""Our engine under load. Of it only the counters are extended: each frame's lateness is noted, at its own cost."""

# isort: off
from tests.benchmarks import our_callers  # first: it patches the process

# isort: on
import gc

import gevent

from loadtest.engine.engine import Engine
from loadtest.engine.health import EngineHealth
from tests.benchmarks.messages import IN_SAMPLES, RESPONSE_ID
from tests.benchmarks.window import CONNECT_S, Window, orders


class RecordingHealth(EngineHealth):
    """The engine's own counters, and each frame's lateness besides."""

    def __init__(self, window: Window) -> None:
        super().__init__()
        self._note = window.lateness_ns.extend

    def note_frames(self, lateness_ns: list[int]) -> None:
        """Frames went out, each of them this late."""
        super().note_frames(lateness_ns)
        self._note(lateness_ns)


def heard(engine: Engine) -> int:
    """How many messages of reply audio have been decoded and played so far, of all calls."""
    samples = 0
    for call in our_callers.calls(engine):
        exchange = call.conversation.exchange
        reply = exchange.timeline.replies.get(RESPONSE_ID) if exchange is not None else None
        if reply is not None and reply.playback is not None:
            samples += reply.playback.samples
    return samples // IN_SAMPLES


def main() -> None:
    """Connect, warm up, measure, and say what it cost."""
    given = orders()
    worker = our_callers.make_worker(given.url, given.ca_file)
    engine = worker.engine
    window = Window(given, lambda: heard(engine))
    engine.health = RecordingHealth(window)
    window.connecting(lambda: engine.health.calls_connected)
    our_callers.start(worker, [given.url] * given.callers)
    gc.collect()
    gc.freeze()
    window.begin()
    while True:
        gevent.sleep(CONNECT_S)  # until the window ends the process


if __name__ == "__main__":
    main()
