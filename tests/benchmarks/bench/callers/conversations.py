"""Our callers who speak, wait and hear: `python -m ….callers.conversations`, with a window's orders first.

They are those of a run: a worker with its engine, conversations and protocol objects, Locust users and Locust's own
statistics, and telemetry to a collector. Only what they say, and when, is the benchmark's.
"""

# isort: off
from tests.benchmarks.bench.callers.ours import RecordingHealth  # first: it patches the process

# isort: on
import gc
import math
import time
import uuid
from array import array
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

import gevent
import locust
from locust.env import Environment

from loadtest.conversation.plan import CallPlan, Limits, PlannedTurn
from loadtest.swarm.users import report_to_locust
from loadtest.swarm.worker import Worker
from telemetry.model.bounds import measured_bounds
from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.model.turns import Turn
from tests.benchmarks.bench.conversations.figures import NOT_STATED, TurnState
from tests.benchmarks.bench.conversations.speakers import Waits, speaking_settings
from tests.benchmarks.bench.window import CONNECT_S, Orders, Window, parser

# No turn is shorter than its think time and its speech, so that nobody comes to the end of his call.
LEAST_TURN_S: Final = 1.0


class SpeakingCallers:
    """The callers of this process, and the record of their turns."""

    def __init__(self, worker: Worker, given: Orders, waits: Waits) -> None:
        self._worker, self._given, self._waits = worker, given, waits
        self._turns = array("q")
        self._reasons: list[tuple[int, str]] = []

    def plan(self, number: int) -> CallPlan:
        """One caller's call, which lasts longer than this process."""
        prepared, given, waits = self._worker.prepared, self._given, self._waits
        longest_s = CONNECT_S + given.warm_up_s + given.window_s
        thinks_ns = [waits.before_first_turn_ns(number, given.callers)]
        thinks_ns += [waits.think_ns] * math.ceil(longest_s / LEAST_TURN_S)
        clips = prepared.clips
        turns = tuple(
            PlannedTurn(clips[(number + turn) % len(clips)], think_ns, None) for turn, think_ns in enumerate(thinks_ns)
        )
        return CallPlan(uuid.uuid4().hex, turns, prepared.background, Limits(reply_ns=waits.reply_ns))

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

    def close(self, file: Path, began_perf_ns: int) -> dict[str, Any]:
        """Write the record, and say what else there is to know of the window."""
        file.write_bytes(self._turns.tobytes())
        reasons = Counter(reason for noted, reason in self._reasons if noted >= began_perf_ns)
        return {"hears": "first_audio", "invalid_by_reason": dict(reasons)}


def main() -> None:
    """Connect, warm up, measure, and print what it cost."""
    words = parser()
    words.add_argument("turns", type=Path)
    words.add_argument("waits_ms", nargs=3)
    words.add_argument("--collector")
    parsed = words.parse_args()
    given = Orders.of(parsed)
    worker = Worker(speaking_settings(given.url, parsed.collector))
    engine, callers = worker.engine, SpeakingCallers(worker, given, Waits.parse(parsed.waits_ms))
    window = Window(given, lambda: 0, lambda began_perf_ns: callers.close(parsed.turns, began_perf_ns))
    engine.health = RecordingHealth(window)
    window.connecting(lambda: engine.health.calls_connected)
    callers.start()
    gc.collect()
    gc.freeze()
    window.begin()
    while True:
        gevent.sleep(CONNECT_S)  # until the window ends the process


if __name__ == "__main__":
    main()
