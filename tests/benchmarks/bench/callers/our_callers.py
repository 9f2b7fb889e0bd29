"""Our callers as a swarm makes them: a worker's engine, calls of Locust users, conversations and protocol objects.

Each caller sends three frames of speech and then hears whatever comes, with its call open, for as long as the process
lives.
"""

# isort: off
import locust  # first: it patches the process

# isort: on
import dataclasses
import sys
from typing import Final

import gevent
from locust.env import Environment

from loadtest.conversation.plan import SECOND_NS, CallPlan, Limits, PlannedTurn
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.engine.call import Call
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.scenario.settings import SwarmSettings
from loadtest.swarm.worker import Worker
from tests.benchmarks.bench.messages import out_frame
from tests.benchmarks.bench.window import CONNECT_S

# No reply is waited for: a caller's turn lasts as long as the process.
FOREVER_NS: Final = 3600 * SECOND_NS
NO_LIMITS: Final = Limits(connect_ns=FOREVER_NS, ready_ns=FOREVER_NS, reply_ns=FOREVER_NS)


def make_worker(url: str, ca_file: str | None = None) -> Worker:
    """One worker of a swarm, with one short utterance to say and no sidecar."""
    return Worker(SwarmSettings(host=url, corpus="voiceprobe-en", length="short", clips=1, ca_file=ca_file))


class OurCallers:
    """The callers of one worker, and their calls."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._speech = _three_frames(worker)
        self._begun: list[Call] = []

    def calls(self) -> list[Call]:
        """The calls under way."""
        return [call for call in self._begun if not call.ended]

    def start(self, urls: list[str]) -> None:
        """Start a Locust user for each address, whose one call does not end; returns when all are connected."""
        engine, waiting, make_the_call = self._worker.engine, list(reversed(urls)), self._make_the_call

        class EngineUser(locust.User):
            """One caller."""

            wait_time = locust.constant(0)

            @locust.task
            def call(self) -> None:
                """Make the call; it ends with the process."""
                make_the_call(waiting.pop())

        wanted = engine.health.calls_connected + len(urls)
        Environment(user_classes=[EngineUser]).create_local_runner().start(len(urls), spawn_rate=len(urls))
        while engine.health.calls_connected < wanted:
            gevent.sleep(0.01)

    def _make_the_call(self, url: str) -> None:
        protocol = registry.make_caller("openai-realtime", CallerOptions())
        plan = CallPlan(url, (PlannedTurn(self._speech, 0, None),), (out_frame(),), NO_LIMITS)
        exchanges = self._worker.engine.call(plan, protocol, protocol.upgrade(url, None), self._begun.append)
        for _, exchange in exchanges:
            sys.stderr.write(f"a call ended: {exchange.outcome}, {exchange.reason}\n")
        gevent.sleep(CONNECT_S)  # a caller whose call ended is not replaced


def _three_frames(worker: Worker) -> PreparedClip:
    """An utterance of three frames, each the message that all senders send."""
    (real,) = worker.prepared.clips
    return dataclasses.replace(real, frames=(out_frame(),) * 3, speech_start_frame=0, speech_end_frame=2)
