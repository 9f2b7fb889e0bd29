"""Our callers who speak, wait and hear: `python -m ….callers.ours`, with the words of caller.c.

They are those of a run: a worker with its engine, conversations and protocol objects, Locust users and Locust's own
statistics, and telemetry to a collector. Only what they say, and when, is the benchmark's.
"""

# isort: off
import locust  # first: it patches the process

# isort: on
import argparse
import ctypes
import gc
import math
import random
import time
import uuid
from array import array
from collections import Counter
from functools import partial
from typing import Any, Final

import gevent
from gevent.monkey import get_original
from locust.env import Environment

from loadtest.conversation.plan import CallPlan, Limits, PlannedTurn
from loadtest.engine.health import EngineHealth
from loadtest.swarm.users import report_to_locust
from loadtest.swarm.worker import Worker
from telemetry.model.bounds import measured_bounds
from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.model.turns import Turn
from tests.benchmarks.bench.callers.window import CONNECT_S, Window, arguments
from tests.benchmarks.bench.figures import NOT_STATED, TurnState
from tests.benchmarks.bench.modes import MS, speaking_settings

# No turn is shorter than its think time and its speech, so that nobody comes to the end of his call.
LEAST_TURN_S: Final = 1.0
# How long the interpreter is held up at a time, and the mean time from one such stall to the next.
HELD_MS: Final = (50, 200, 1000)
HELD_EVERY_S: Final = 2.0


class RecordingHealth(EngineHealth):
    """The engine's own counters, and each frame's lateness as well, at its own cost."""

    def __init__(self, window: Window) -> None:
        super().__init__()
        self._note = window.lateness_ns.extend

    def note_frames(self, lateness_ns: list[int]) -> None:
        """Frames went out, each of them this late."""
        super().note_frames(lateness_ns)
        self._note(lateness_ns)


class SpeakingCallers:
    """The callers of this process, and the record of their turns."""

    def __init__(self, worker: Worker, given: argparse.Namespace) -> None:
        self._worker, self._given = worker, given
        self._turns = array("q")
        self._reasons: list[tuple[int, str]] = []

    def plan(self, number: int) -> CallPlan:
        """One caller's call, which lasts longer than this process."""
        prepared, given = self._worker.prepared, self._given
        longest_s = CONNECT_S + (given.warm_up_ms + given.window_ms) / 1e3
        think_ns = given.think_ms * MS
        thinks_ns = [think_ns + given.stagger_ms * MS * number // given.callers]
        thinks_ns += [think_ns] * math.ceil(longest_s / LEAST_TURN_S)
        clips = prepared.clips
        turns = tuple(
            PlannedTurn(clips[(number + turn) % len(clips)], think_ns, None) for turn, think_ns in enumerate(thinks_ns)
        )
        return CallPlan(uuid.uuid4().hex, turns, prepared.background, Limits(reply_ns=given.reply_ms * MS))

    def note(self, turn: Turn) -> None:
        """A turn has ended and was handed to telemetry."""
        now = time.perf_counter_ns()
        caller, number = -1, -1
        if turn.response_id is not None:
            caller, number = map(int, turn.response_id.removeprefix("resp_").split("-"))
        state = {"ok": TurnState.ANSWERED, "invalid": TurnState.INVALID}.get(turn.outcome, TurnState.UNANSWERED)
        end, heard = turn.speech_end_perf_ns or 0, turn.first_audio_perf_ns or 0
        # The endpoint is given the end of speech as it is annotated, so that only the measuring is in doubt.
        bounds = measured_bounds(turn, METRICS[HEADLINE])
        off_ns = (NOT_STATED, NOT_STATED)
        if bounds is not None:
            off_ns = (math.ceil(heard - end - bounds[0]), math.ceil(bounds[1] - (heard - end)))
        self._turns.extend((caller, number, end, heard, now, state, *off_ns))
        self._reasons += [(now, reason) for reason in turn.invalid_reasons]

    def start(self) -> None:
        """Start every caller as a Locust user; returns when all are connected."""
        worker, waiting = self._worker, list(reversed(range(self._given.callers)))
        note, plan = self.note, self.plan

        class SpeakingUser(locust.User):
            """One caller."""

            wait_time = locust.constant(0)

            @locust.task
            def call(self) -> None:
                """Make the call; one that ends is not replaced."""
                report = partial(report_to_locust, self.environment)

                def on_turn(turn: Turn) -> None:
                    report(turn)
                    note(turn)

                worker.call(on_turn, plan=plan(waiting.pop()))
                gevent.sleep(CONNECT_S)

        callers = self._given.callers
        Environment(user_classes=[SpeakingUser]).create_local_runner().start(callers, spawn_rate=callers)
        while worker.engine.health.calls_connected < callers:
            gevent.sleep(0.01)

    def close(self, began_perf_ns: int) -> dict[str, Any]:
        """Write the record, and say what else there is to know of the window."""
        self._given.turns.write_bytes(self._turns.tobytes())
        reasons = Counter(reason for noted, reason in self._reasons if noted >= began_perf_ns)
        return {"hears": "first_audio", "invalid_by_reason": dict(reasons)}


def hold_the_interpreter() -> None:
    """Keep the interpreter for a while at random moments, in a thread that gevent knows nothing of."""
    draw, sleep = random.Random(1), get_original("time", "sleep")
    usleep = ctypes.PyDLL(None).usleep  # a PyDLL keeps the interpreter while it is in the call

    def hold() -> None:
        while True:
            sleep(draw.uniform(0.2, 1.8) * HELD_EVERY_S)
            usleep(draw.choice(HELD_MS) * 1000)

    get_original("_thread", "start_new_thread")(hold, ())


def main() -> None:
    """Connect, warm up, measure, and print what it cost."""
    given = arguments()
    worker = Worker(speaking_settings(given.url, given.collector, given.ca_file))
    engine, callers = worker.engine, SpeakingCallers(worker, given)
    window = Window(given, callers.close)
    engine.health = RecordingHealth(window)
    window.connecting(lambda: engine.health.calls_connected)
    callers.start()
    gc.collect()
    gc.freeze()
    if given.hold:
        hold_the_interpreter()
    window.begin()
    while True:
        gevent.sleep(CONNECT_S)  # until the window ends the process


if __name__ == "__main__":
    main()
