"""Thousands of callers in one worker as the swarm builds it, as a process: `python -m tests.integration.engine.crowd`.

Prints one JSON object of what it cost. It is a process of its own because importing locust patches it.
"""

import argparse
import json
import os
import time
from dataclasses import replace

import locust  # noqa: F401 - patches the process, as in a swarm

import gevent  # isort: skip
import psutil

from loadtest.conversation.plan import SECOND_NS
from loadtest.scenario.behavior import parse_think
from loadtest.scenario.settings import SwarmSettings
from loadtest.swarm.worker import Worker
from telemetry.model.durations import Duration
from telemetry.model.turns import Turn

MEGABYTE = 2**20


def crowd(url: str, count: int, corpus: str) -> dict[str, float]:
    """Connect them all, let them speak, and look at the process while they do."""
    process = psutil.Process()
    # Nobody answers: they speak, and wait until this process has been looked at.
    worker = Worker(
        SwarmSettings(
            host=url,
            corpus=corpus,
            turns=20,
            think=parse_think(1.0),
            manual_turns=True,
            reply_timeout=Duration.of_s(600),
        )
    )
    patient = replace(worker._planner._limits, connect_ns=60 * SECOND_NS, ready_ns=60 * SECOND_NS)
    worker._planner._limits = patient
    prepared_mb = process.memory_info().rss / MEGABYTE
    engine = worker.engine
    failed: list[Turn] = []
    given_up_at = time.monotonic() + 120
    for _ in range(count):
        gevent.spawn(worker.call, failed.append)
    # Until everybody is on the line, and has been for half a second.
    while len(engine._sending) < count and time.monotonic() < given_up_at:
        gevent.sleep(0.05)
    enough = engine.health.frames_sent + 25 * count
    while engine.health.frames_sent < enough and time.monotonic() < given_up_at:
        gevent.sleep(0.05)
    return {
        "callers": len(engine._sending),
        "failed": len(failed),
        "frames": engine.health.frames_sent,
        "prepared_mb": prepared_mb,
        "rss_mb": process.memory_info().rss / MEGABYTE,
        "clips": len(worker.prepared.clips),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--corpus", required=True)
    given = parser.parse_args()
    print(json.dumps(crowd(given.url, given.count, given.corpus)), flush=True)
    # The callers are not asked to end: how they do is tested elsewhere.
    os._exit(0)
