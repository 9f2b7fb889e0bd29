"""The load test that people write today: a Locust user with websocket-client, a greenlet a caller, JSON and base64 for
every frame, and a sleep of the frame's length after each one.

The schedule that it is held against is the one it means to keep: its first frame, and 20 ms more for each later one.
"""

# isort: off
import locust  # first: it patches the process

# isort: on
import argparse
import base64
import json
import time

import gevent
import gevent.event
import websocket
from locust.env import Environment

from tests.benchmarks.bench.callers.window import CONNECT_S, Window, arguments
from tests.benchmarks.bench.modes import FRAME_NS

FRAME_PCM = bytes(960)  # 20 ms of 16-bit audio at 24 kHz


class NaiveSwarm:
    """All callers of this process."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.window = Window(given)
        self.connected = 0
        self.everybody = gevent.event.Event()

    def listen(self, ws: websocket.WebSocket) -> None:
        """Decode what the endpoint says."""
        while text := ws.recv():
            event = json.loads(text)
            if event["type"] == "response.output_audio.delta":
                base64.b64decode(event["delta"])

    def call(self) -> None:
        """Connect, wait for the others, and say the same 20 ms for ever."""
        ca_file = self.given.ca_file
        ws = websocket.create_connection(self.given.url, sslopt={"ca_certs": ca_file} if ca_file else None)
        gevent.spawn(self.listen, ws)
        self.connected += 1
        if self.connected == self.given.callers:
            self.everybody.set()
        self.everybody.wait()
        note, sent, first_perf_ns = self.window.lateness_ns.append, 0, time.perf_counter_ns()
        while True:
            audio = base64.b64encode(FRAME_PCM).decode()
            ws.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            note(time.perf_counter_ns() - first_perf_ns - sent * FRAME_NS)
            sent += 1
            time.sleep(FRAME_NS / 1e9)

    def start(self) -> None:
        """Start every caller as a Locust user; returns when all are connected."""
        swarm = self

        class NaiveUser(locust.User):
            """One caller."""

            wait_time = locust.constant(0)

            @locust.task
            def call(self) -> None:
                """Make the call; it ends with the process."""
                swarm.call()

        runner = Environment(user_classes=[NaiveUser]).create_local_runner()
        runner.start(self.given.callers, spawn_rate=self.given.callers)
        self.everybody.wait()


def main() -> None:
    """Connect, warm up, measure, and print what it cost."""
    swarm = NaiveSwarm(arguments())
    swarm.window.connecting(lambda: swarm.connected)
    swarm.start()
    swarm.window.begin()
    while True:
        gevent.sleep(CONNECT_S)  # until the window ends the process


if __name__ == "__main__":
    main()
