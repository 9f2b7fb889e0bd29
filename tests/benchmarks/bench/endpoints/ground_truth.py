"""An endpoint that notes when it sends: the monotonic clock just before and just after each message.

`python -m ….endpoints.ground_truth RECORD` prints {"port": N}, greets each caller, and once its audio
comes sends it small messages at irregular moments, until SIGTERM. RECORD gets {path: [[before, after], …]} as JSON.
"""

import heapq
import json
import random
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Final

from websockets.http11 import Request
from websockets.server import ServerProtocol

from tests.benchmarks.bench.messages import RESPONSE_ID, greeting, server_frame

# The caller sends audio and its first moments are over: frames of 648 bytes.
BYTES_BEFORE_SPEAKING: Final = 20 * 648
GAP_MS: Final = (10.0, 30.0)


class Probe:
    """One connection, and when each message to it was sent."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.wire: ServerProtocol | None = ServerProtocol()
        self.path = ""
        self.heard = 0
        self.speaking = self.gone = False
        self.sent: list[tuple[int, int]] = []

    def receive(self) -> bytes:
        """What came; nothing at the end."""
        try:
            return self.sock.recv(65_536)
        except ConnectionError:
            return b""

    def take(self, data: bytes) -> None:
        """The upgrade first, then audio, of which only the length matters."""
        self.heard += len(data)
        wire = self.wire
        if wire is None:
            return
        wire.receive_data(data)
        for request in wire.events_received():
            if isinstance(request, Request):
                self.path = request.path
                wire.send_response(wire.accept(request))
                self.sock.sendall(b"".join(wire.data_to_send()) + greeting())
                self.wire = None

    def speak(self) -> None:
        """Send one message and note when."""
        message = {"type": "response.output_audio_transcript.delta", "response_id": RESPONSE_ID, "item_id": "item_1"}
        frame = server_frame(json.dumps({**message, "delta": f"{len(self.sent)} "}))
        before = time.perf_counter_ns()
        self.sock.send(frame)
        self.sent.append((before, time.perf_counter_ns()))


def serve(listener: socket.socket, callers: list[Probe]) -> None:
    """Until SIGTERM, which raises."""
    ready, due = selectors.DefaultSelector(), list[tuple[float, int, Probe]]()
    gaps = random.Random(1)
    ready.register(listener, selectors.EVENT_READ)
    while True:
        wait_s = max(0.0, due[0][0] - time.monotonic()) if due else 1.0
        for key, _ in ready.select(wait_s):
            if key.data is None:
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                callers.append(Probe(sock))
                ready.register(sock, selectors.EVENT_READ, callers[-1])
                continue
            caller: Probe = key.data
            data = caller.receive()
            if not data:
                ready.unregister(caller.sock)
                caller.gone = True
                continue
            caller.take(data)
            if not caller.speaking and caller.heard > BYTES_BEFORE_SPEAKING:
                caller.speaking = True
                heapq.heappush(due, (time.monotonic(), caller.sock.fileno(), caller))
        while due and due[0][0] <= time.monotonic():
            _, number, caller = heapq.heappop(due)
            if not caller.gone:
                caller.speak()
                heapq.heappush(due, (time.monotonic() + gaps.uniform(*GAP_MS) / 1e3, number, caller))


class Over(Exception):  # noqa: N818 - what happened
    """SIGTERM came."""


def main() -> None:
    """Serve, and write down what was sent when."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Over

    callers: list[Probe] = []
    signal.signal(signal.SIGTERM, end)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    sys.stdout.write(json.dumps({"port": listener.getsockname()[1]}) + "\n")
    sys.stdout.flush()
    try:
        serve(listener, callers)
    except (Over, ConnectionError):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(sys.argv[1]).write_text(json.dumps({caller.path: caller.sent for caller in callers}))
    sys.stdout.write(json.dumps({"callers": len(callers)}) + "\n")


if __name__ == "__main__":
    main()
