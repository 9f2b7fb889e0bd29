"""An endpoint that knows when it spoke: the monotonic clock just before and just after sending each message.

`python -m tests.benchmarks.truth RECORD` prints {"port": N}, greets each caller, and once its line is open sends it
small messages at moments that follow no rhythm, until SIGTERM. RECORD gets {path: [[before, after], …]} as JSON.
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

from websockets.server import ServerProtocol

from tests.benchmarks.messages import RESPONSE_ID, greeting, server_frame

# The caller's line is open and its first moments are over: frames of 648 bytes.
BYTES_BEFORE_SPEAKING = 20 * 648
GAP_MS = (10.0, 30.0)


class Caller:
    """One connection."""

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
        if self.wire is None:
            return
        self.wire.receive_data(data)
        for request in self.wire.events_received():
            self.path = request.path  # type: ignore[union-attr]  # the first event is the request
            self.wire.send_response(self.wire.accept(request))  # type: ignore[arg-type]
            self.sock.sendall(b"".join(self.wire.data_to_send()) + greeting())
            self.wire = None

    def speak(self) -> None:
        """Send one message and know when."""
        message = {"type": "response.output_audio_transcript.delta", "response_id": RESPONSE_ID, "item_id": "item_1"}
        frame = server_frame(json.dumps({**message, "delta": f"{len(self.sent)} "}))
        before = time.perf_counter_ns()
        self.sock.send(frame)
        self.sent.append((before, time.perf_counter_ns()))


def serve(listener: socket.socket, callers: list[Caller]) -> None:
    """Until SIGTERM, which raises."""
    ready, due, gaps = selectors.DefaultSelector(), list[tuple[float, int, Caller]](), random.Random(1)
    ready.register(listener, selectors.EVENT_READ)
    while True:
        wait_s = max(0.0, due[0][0] - time.monotonic()) if due else 1.0
        for key, _ in ready.select(wait_s):
            if key.data is None:
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                callers.append(Caller(sock))
                ready.register(sock, selectors.EVENT_READ, callers[-1])
                continue
            caller: Caller = key.data
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
    """SIGTERM."""


def main() -> None:
    """Serve, and write down what was said when."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Over

    callers: list[Caller] = []
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
