"""The other end: takes calls of every wire, opens their sessions, and discards what they say. On some it also speaks.

`python -m ….density.sink RECORD` prints {"ports": {wire: [silent, speaking]}}. On SIGTERM it writes to
RECORD the moments at which it sent chunks of a reply, as {wire: [perf_ns, …]}.
"""

import contextlib
import json
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from websockets.http11 import Request
from websockets.server import ServerProtocol

from tests.benchmarks.bench.density.wires import BY_NAME, DensityWire
from tests.benchmarks.bench.window import cpu_ns

# It looks for data this often rather than at every frame: to wake it is no cost of a frame.
EVERY_S: Final = 0.002
CHUNK_EVERY_NS: Final = 5_000_000
_READ_BYTES: Final = 1 << 18
_SENT_AT_MOST_LATE_NS: Final = 1_000_000_000


@dataclass(slots=True)
class _Caller:
    """One call that it took. `upgrade` is None once the WebSocket is open, and on a wire without one."""

    sock: socket.socket
    wire: DensityWire
    speaks: bool
    upgrade: ServerProtocol | None
    late: bytes = b""  # what the socket did not accept yet of a chunk
    due_perf_ns: int = 0  # of the next chunk; 0 for a call that is not spoken to


@dataclass(slots=True)
class AudioSink:
    """All listeners and calls."""

    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    listeners: dict[int, tuple[socket.socket, DensityWire, bool]] = field(
        default_factory=dict[int, tuple[socket.socket, DensityWire, bool]]
    )
    callers: dict[int, _Caller] = field(default_factory=dict[int, _Caller])
    spoken: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    buffer: bytearray = field(default_factory=lambda: bytearray(_READ_BYTES))

    def listen(self, wire: DensityWire, *, speaks: bool) -> int:
        """Take calls of a wire; return the port."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        listener.setblocking(False)
        self.listeners[listener.fileno()] = (listener, wire, speaks)
        self.selector.register(listener, selectors.EVENT_READ)
        return listener.getsockname()[1]

    def turn(self) -> None:
        """Take what has come, and speak where it is time."""
        for key, _ in self.selector.select(0):
            descriptor = key.fd
            if descriptor in self.listeners:
                self._welcome(*self.listeners[descriptor])
            else:
                self._receive(self.callers[descriptor])
        for caller in [each for each in self.callers.values() if each.due_perf_ns]:
            self._speak(caller)

    def _welcome(self, listener: socket.socket, wire: DensityWire, speaks: bool) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                caller = _Caller(sock, wire, speaks, None if wire.is_tcp else ServerProtocol())
                self.callers[sock.fileno()] = caller
                self.selector.register(sock, selectors.EVENT_READ)
                if wire.is_tcp:
                    self._open(caller)

    def _receive(self, caller: _Caller) -> None:
        try:
            size = caller.sock.recv_into(self.buffer)
        except OSError:
            size = 0
        if not size:
            del self.callers[caller.sock.fileno()]
            self.selector.unregister(caller.sock)
            caller.sock.close()
        elif caller.upgrade is not None:
            self._upgrade(caller, caller.upgrade, bytes(self.buffer[:size]))

    def _upgrade(self, caller: _Caller, upgrade: ServerProtocol, data: bytes) -> None:
        upgrade.receive_data(data)
        for request in upgrade.events_received():
            if isinstance(request, Request):
                upgrade.send_response(upgrade.accept(request))
                caller.sock.send(b"".join(upgrade.data_to_send()))
                caller.upgrade = None
                self._open(caller)

    def _open(self, caller: _Caller) -> None:
        wire = caller.wire
        caller.sock.send(wire.on_wire(*wire.greeting, *(wire.beginning if caller.speaks else ())))
        if caller.speaks and wire.chunk is not None:
            caller.due_perf_ns = time.perf_counter_ns()

    def _speak(self, caller: _Caller) -> None:
        """Send the chunks that are due. One that a caller does not take is sent first, and others are left out."""
        now, chunk = time.perf_counter_ns(), caller.wire.chunk
        if chunk is None or now < caller.due_perf_ns:
            return
        if now - caller.due_perf_ns > _SENT_AT_MOST_LATE_NS:
            caller.due_perf_ns = now
        whole = caller.late or caller.wire.on_wire(chunk)
        caller.due_perf_ns += CHUNK_EVERY_NS
        try:
            sent = caller.sock.send(whole)
        except BlockingIOError:
            sent = 0
        except OSError:
            caller.due_perf_ns = 0  # it has hung up, and what it says last is still to be read
            return
        caller.late = whole[sent:]
        if not caller.late:
            self.spoken.setdefault(caller.wire.name, []).append(now)


def main() -> None:
    """Take calls until SIGTERM."""
    over = list[bool]()
    signal.signal(signal.SIGTERM, lambda number, place: over.append(True))
    sink = AudioSink()
    ports = {name: [sink.listen(wire, speaks=False), sink.listen(wire, speaks=True)] for name, wire in BY_NAME.items()}
    sys.stdout.write(json.dumps({"ports": ports}) + "\n")
    sys.stdout.flush()
    while not over:
        sink.turn()
        time.sleep(EVERY_S)
    Path(sys.argv[1]).write_text(json.dumps(sink.spoken))
    sys.stdout.write(json.dumps({"cpu_ns": cpu_ns()}) + "\n")


if __name__ == "__main__":
    main()
