"""Our callers as a swarm makes them: a worker's engine, calls of Locust users, sessions and protocol objects.

Each caller says three frames and then hears whatever comes, with its line open, for as long as the process lives.
"""

# isort: off
import locust  # first: it patches the process

# isort: on
import dataclasses
import sys

import gevent
from locust.env import Environment

from loadtest.conversation.plan import SECOND_NS, CallPlan, Limits, PlannedTurn
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.engine.call import Call
from loadtest.engine.engine import Engine
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.scenario.settings import SwarmSettings
from loadtest.swarm.worker import Worker
from tests.benchmarks.messages import out_frame
from tests.benchmarks.window import CONNECT_S

# No reply is waited for: a caller's turn lasts as long as the process.
FOREVER_NS = 3600 * SECOND_NS


def make_worker(url: str, ca_file: str | None = None, sidecar: str | None = None) -> Worker:
    """One worker of a swarm, with the smallest of speech."""
    return Worker(
        SwarmSettings(host=url, corpus="voiceprobe-en", length="short", clips=1, ca_file=ca_file, sidecar=sidecar)
    )


def three_frames(worker: Worker) -> PreparedClip:
    """An utterance of three frames, each the message that all senders send."""
    (real,) = worker.prepared.clips
    return dataclasses.replace(real, frames=(out_frame(),) * 3, speech_start_frame=0, speech_end_frame=2)


def endless(call_id: str, speech: PreparedClip) -> CallPlan:
    """Speak at once, and wait for as long as it takes."""
    limits = Limits(connect_ns=FOREVER_NS, ready_ns=FOREVER_NS, reply_ns=FOREVER_NS)
    return CallPlan(call_id, (PlannedTurn(speech, 0, None),), (out_frame(),), limits)


def start(worker: Worker, urls: list[str]) -> None:
    """Start a Locust user for each address, whose one call does not end; returns when all are connected."""
    engine, speech, waiting = worker.engine, three_frames(worker), list(reversed(urls))

    class Caller(locust.User):
        """One caller."""

        wait_time = locust.constant(0)

        @locust.task
        def call(self) -> None:
            """Make the call; it ends with the process."""
            url = waiting.pop()
            protocol = registry.make_caller("openai-realtime", CallerOptions())
            for _, exchange in engine.call(endless(url, speech), protocol, protocol.upgrade(url, None)):
                sys.stderr.write(f"a call ended: {exchange.outcome}, {exchange.reason}\n")
            gevent.sleep(CONNECT_S)  # a caller whose call ended is not replaced

    wanted = engine.health.calls_connected + len(urls)
    Environment(user_classes=[Caller]).create_local_runner().start(len(urls), spawn_rate=len(urls))
    while engine.health.calls_connected < wanted:
        gevent.sleep(0.01)


def calls(engine: Engine) -> list[Call]:
    """The calls under way."""
    return list(engine._calls)
