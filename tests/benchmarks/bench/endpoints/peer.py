"""The peer where there is no C compiler: the same command line and the same answers as peer.c.

It is slower than the one in C and says so by its own lateness; sizes are smaller then.
"""

import asyncio
import json
import signal
import ssl
import sys
import time
from array import array
from pathlib import Path
from typing import Final, cast

from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from tests.benchmarks.bench.messages import FRAME_NS
from tests.benchmarks.bench.window import cpu_ns

FRAMES_BEFORE_SPEAKING: Final = 5


class Peer:
    """What all connections share."""

    def __init__(self, greeting: bytes, frame: bytes | None, out_bytes: int) -> None:
        self.greeting, self.frame, self.out_bytes = greeting, frame, out_bytes
        self.accepted = self.received = self.dropped = 0
        self.records = array("q")


class PeerConnection(asyncio.Protocol):
    """One caller."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._wire: ServerProtocol | None = ServerProtocol()
        self._heard = 0
        self._buffer = bytearray()
        self._full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False

    def data_received(self, data: bytes) -> None:
        if self._wire is not None:
            end = data.find(b"\r\n\r\n")
            head, data = (data, b"") if end < 0 else (data[: end + 4], data[end + 4 :])
            self._upgrade(self._wire, head)
        self._buffer += data
        self._frames()

    def _upgrade(self, wire: ServerProtocol, head: bytes) -> None:
        """Accept the request, whole or in parts."""
        wire.receive_data(head)
        for request in wire.events_received():
            if isinstance(request, Request):
                wire.send_response(wire.accept(request))
                self._transport.write(b"".join(wire.data_to_send()) + self._peer.greeting)
                self._peer.accepted += 1
                self._wire = None

    def _frames(self) -> None:
        """Count whole frames; of a caller's frames only the heads matter."""
        buffer, at = self._buffer, 0
        while len(buffer) - at >= 8:
            length, head = buffer[at + 1] & 0x7F, 6
            if length == 126:
                length, head = int.from_bytes(buffer[at + 2 : at + 4], "big"), 8
            if len(buffer) - at < head + length:
                break
            if buffer[at] & 0x0F == Opcode.CLOSE:
                self._transport.close()
            if length == self._peer.out_bytes:
                self._peer.received += 1
                self._heard += 1
                if self._heard == FRAMES_BEFORE_SPEAKING and self._peer.frame is not None:
                    self._due_perf_ns = time.perf_counter_ns()
                    self._speak()
            at += head + length
        del buffer[:at]

    def _speak(self) -> None:
        frame = self._peer.frame
        if frame is None or self._transport.is_closing():
            return
        now = time.perf_counter_ns()
        if self._full:
            self._peer.dropped += 1
        else:
            self._transport.write(frame)
            self._peer.records.extend((now, now - self._due_perf_ns))
        self._due_perf_ns += FRAME_NS
        asyncio.get_running_loop().call_later((self._due_perf_ns - time.perf_counter_ns()) / 1e9, self._speak)


async def serve(peer: Peer, context: ssl.SSLContext | None) -> None:
    """Take callers until SIGTERM."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    server = await loop.create_server(lambda: PeerConnection(peer), "127.0.0.1", 0, ssl=context, backlog=4096)
    sys.stdout.write(json.dumps({"port": server.sockets[0].getsockname()[1]}) + "\n")
    sys.stdout.flush()
    await over.wait()
    await asyncio.sleep(0.2)  # what is on its way is counted


def main() -> None:
    """As peer.c."""
    greeting, frame, out_bytes, record, *tls = sys.argv[1:]
    peer = Peer(Path(greeting).read_bytes(), None if frame == "-" else Path(frame).read_bytes(), int(out_bytes))
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
    asyncio.run(serve(peer, context))
    Path(record).write_bytes(peer.records.tobytes())
    counts = {"accepted": peer.accepted, "received": peer.received, "sent": len(peer.records) // 2}
    sys.stdout.write(json.dumps({**counts, "dropped": peer.dropped, "cpu_ns": cpu_ns()}) + "\n")


if __name__ == "__main__":
    main()
