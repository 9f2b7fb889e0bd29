"""The ground-truth endpoint's server: raw non-blocking sockets on one epoll, and one timer for everything to send.

On one core, it must keep up with more callers than a load generator in Python can drive. A silent frame costs it one
system call and one comparison; only two audio frames per turn are decoded.
"""

import gc
import heapq
import select
import signal
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from loadtest.errors import UsageError
from loadtest.protocols.openai_realtime.service import ServiceSession, UpdateSession
from loadtest.targets.ground_truth.conversation import DONE, GroundTruthConversation, Send
from loadtest.targets.ground_truth.frames import SILENCE, FrameCutter, Kind
from loadtest.targets.ground_truth.plan import Behavior
from loadtest.timerfd import TimerFd

_SINGLE_BYTES: Final = 16


class SendBuffer:
    """The outgoing data of one connection, in order. `waits` while the socket does not accept everything."""

    def __init__(self, sock: socket.socket, bytewise: bool) -> None:
        self._sock = sock
        self._bytewise = bytewise
        self._rest: deque[bytes] = deque()
        self.closed = False

    @property
    def waits(self) -> bool:
        """Whether the socket has not accepted everything yet."""
        return bool(self._rest)

    def send(self, data: bytes) -> tuple[int, int | None]:
        """Send `data`; return the times just before and just after the kernel accepted the last byte.

        The second one is None if the kernel did not accept everything now.
        """
        if self._bytewise and not self._rest and len(data) > 2 * _SINGLE_BYTES:
            middle = len(data) - _SINGLE_BYTES
            for at in range(_SINGLE_BYTES):
                self._put(data[at : at + 1])
            self._put(data[_SINGLE_BYTES:middle])
            for at in range(middle, len(data) - 1):
                self._put(data[at : at + 1])
            data = data[-1:]
        before = time.perf_counter_ns()
        taken = self._put(data)
        return before, time.perf_counter_ns() if taken else None

    def _put(self, data: bytes) -> bool:
        if self.closed:
            return False
        if self._rest:
            self._rest.append(data)
            return False
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.closed = True  # the reader sees this, and closes
            return False
        if sent < len(data):
            self._rest.append(data[sent:])
        return sent == len(data)

    def flush(self) -> bool:
        """Send what is waiting; return whether everything has been sent."""
        while self._rest:
            data = self._rest.popleft()
            try:
                sent = self._sock.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.closed = True
                self._rest.clear()
                return True
            if sent < len(data):
                self._rest.appendleft(data[sent:])
                return False
        return True


_SO_TIMESTAMPNS: Final = 35
_ATTEMPTS: Final = 9
_SECOND_NS: Final = 1_000_000_000


def ask_for_stamps(sock: socket.socket) -> None:
    """Make the kernel timestamp what it receives on a socket."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


class StampClock:
    """The offset between the wall clock, which the kernel uses for timestamps, and the monotonic clock."""

    def __init__(self) -> None:
        self._offset_ns = 0
        self.measure()

    def measure(self) -> None:
        """Measure the offset again, from the tightest of a few readings."""
        pairs: list[tuple[int, int]] = []
        for _ in range(_ATTEMPTS):
            before = time.perf_counter_ns()
            wall = time.time_ns()
            after = time.perf_counter_ns()
            pairs.append((after - before, wall - (before + after) // 2))
        self._offset_ns = min(pairs)[1]

    def moment_perf_ns(self, ancillary: list[tuple[int, int, bytes]]) -> int:
        """Return the timestamp in a read's ancillary data, or the current time if it has no timestamp."""
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack_from("qq", payload)
                return seconds * _SECOND_NS + nanoseconds - self._offset_ns
        return time.perf_counter_ns()


_READ_SIZE: Final = 256 * 1024
_ANCILLARY_SIZE: Final = 64
_EVENTS_AT_ONCE: Final = 32
_HEALTH_EVERY_NS: Final = 1_000_000_000
_RECEIVE_BUFFER: Final = 64 * 1024  # small, so that callers soon detect an endpoint that does not read


@dataclass(frozen=True, slots=True)
class GroundTruthSettings:
    """The endpoint's settings. Connection `n` has the behavior `behaviors[n % len(behaviors)]`."""

    port: int
    truth: Path
    delays_ns: tuple[int, ...]
    behaviors: tuple[Behavior, ...]
    seed: int
    name: str  # part of every response id, so that ids of two endpoints never collide


@dataclass(slots=True)
class GroundTruthConnection:
    """One caller's connection."""

    sock: socket.socket
    send_buffer: SendBuffer
    conversation: GroundTruthConversation
    upgrade: ServerProtocol = field(default_factory=ServerProtocol)
    session: ServiceSession | None = None
    cutter: FrameCutter = field(default_factory=FrameCutter)
    speaking: bool = False


class GroundTruthServer:
    """The server; it runs until `stop` is called or a signal arrives."""

    def __init__(self, settings: GroundTruthSettings) -> None:
        """Raises UsageError if it cannot listen, or if the system has no timerfd."""
        self._settings = settings
        timer = TimerFd.open()
        if timer is None:
            raise UsageError(
                "the ground-truth endpoint requires Linux: it uses the kernel's timer descriptors (timerfd)"
            )
        self._timer = timer
        self._armed_perf_ns: int | None = None
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        try:
            self._listener.bind(("127.0.0.1", settings.port))
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"cannot listen on --port {settings.port}: {reason}; choose another port, or 0") from None
        self._listener.listen(1024)
        self._listener.setblocking(False)
        self.url = f"ws://127.0.0.1:{self._listener.getsockname()[1]}/v1/realtime"
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._epoll.register(timer.fd, select.EPOLLIN)
        self._connections: dict[int, GroundTruthConnection] = {}
        self._numbers = count()
        self._clock = StampClock()
        self._buffer = bytearray(_READ_SIZE)
        self._view = [memoryview(self._buffer)]
        self._due: list[tuple[int, int, GroundTruthConnection, Send]] = []
        self._order = count()
        self._rows: deque[dict[str, Any]] = deque()
        self._frames = 0
        self._broken = 0
        self._stopping = False

    def stop(self, *_signal: object) -> None:
        """Stop serving at the next pass of the loop."""
        self._stopping = True

    def serve(self) -> None:
        """Serve callers until `stop` is called; when this returns, the truth file is complete."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)
        # Nothing here creates enough reference cycles to be worth a pause for garbage collection.
        gc.collect()
        gc.freeze()
        gc.disable()
        with self._settings.truth.open("ab") as file:
            health_at = time.perf_counter_ns()
            while not self._stopping:
                for fd, events in self._epoll.poll(0.2, _EVENTS_AT_ONCE):
                    self._serve_one(fd, events)
                now = time.perf_counter_ns()
                self._send_due(now)
                if now >= health_at:
                    health_at = now + _HEALTH_EVERY_NS
                    self._clock.measure()
                    self._note_health(now)
                    self._write(file)
            self._note_health(time.perf_counter_ns())
            self._write(file)
        for connection in list(self._connections.values()):
            connection.sock.close()
        self._listener.close()
        self._epoll.close()
        self._timer.close()

    def _serve_one(self, fd: int, events: int) -> None:
        connection = self._connections.get(fd)
        if connection is not None:
            if events & select.EPOLLOUT and connection.send_buffer.flush():
                self._watch(connection)
            if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                self._read(fd, connection)
        elif fd == self._timer.fd:
            self._timer.fired()
            self._armed_perf_ns = None
        elif fd == self._listener.fileno():
            self._accept()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # the client has already disconnected
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_stamps(sock)
        number, settings = next(self._numbers), self._settings
        behavior = settings.behaviors[number % len(settings.behaviors)]
        conversation = GroundTruthConversation(
            number, f"{settings.name}-{number}", behavior, settings.delays_ns, settings.seed
        )
        self._connections[sock.fileno()] = GroundTruthConnection(
            sock, SendBuffer(sock, behavior == "bytewise"), conversation
        )
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _watch(self, connection: GroundTruthConnection) -> None:
        """Register the events that the connection waits for."""
        events = select.EPOLLOUT if connection.send_buffer.waits else 0
        if connection.conversation.behavior != "stall" or connection.session is None:
            events |= select.EPOLLIN
        self._epoll.modify(connection.sock.fileno(), events)

    def _read(self, fd: int, connection: GroundTruthConnection) -> None:
        try:
            size, ancillary, _, _ = connection.sock.recvmsg_into(self._view, _ANCILLARY_SIZE)
        except BlockingIOError:
            return
        except OSError:
            size, ancillary = 0, []
        if not size:
            self._close(fd, connection)
        elif size == len(SILENCE) and connection.cutter.is_between_frames and self._buffer.startswith(SILENCE):
            self._frames += 1
            if connection.speaking:
                connection.speaking = False
                connection.conversation.on_silence()
        else:
            self._read_more(fd, connection, bytes(self._view[0][:size]), self._clock.moment_perf_ns(ancillary))

    def _read_more(self, fd: int, connection: GroundTruthConnection, data: bytes, stamp_perf_ns: int) -> None:
        if connection.session is None:
            self._upgrade(connection, data)
            return
        for frame in connection.cutter.cut(data):
            if frame.kind is Kind.OTHER:
                self._other_frame(fd, connection, frame.data)
                continue
            self._frames += 1
            connection.speaking = frame.kind is Kind.SPEECH
            if frame.kind is Kind.SILENCE:
                connection.conversation.on_silence()
                continue
            sends = connection.conversation.on_speech(frame.data, stamp_perf_ns, frame.is_last)
            now = time.perf_counter_ns()
            for send in sends:
                heapq.heappush(self._due, (max(send.due_perf_ns, now), next(self._order), connection, send))

    def _upgrade(self, connection: GroundTruthConnection, data: bytes) -> None:
        upgrade = connection.upgrade
        upgrade.receive_data(data)
        for event in upgrade.events_received():
            if isinstance(event, Request):
                upgrade.send_response(upgrade.accept(event))
                connection.session = ServiceSession(lambda kind: f"{kind}_{self._settings.name}")
                upgrade.send_text(connection.session.created().encode())
        self._send_pending(connection)

    def _other_frame(self, fd: int, connection: GroundTruthConnection, data: bytes) -> None:
        upgrade, session = connection.upgrade, connection.session
        upgrade.receive_data(data)
        for event in upgrade.events_received():
            if isinstance(event, Frame) and event.opcode is Opcode.TEXT and session is not None:
                for command in session.receive(bytes(event.data).decode()):
                    if isinstance(command, UpdateSession):
                        upgrade.send_text(session.updated().encode())
        self._send_pending(connection)
        if upgrade.close_expected():
            self._close(fd, connection)
        elif connection.conversation.behavior == "stall":
            self._watch(connection)

    def _send_pending(self, connection: GroundTruthConnection) -> None:
        data = b"".join(connection.upgrade.data_to_send())
        if data and connection.send_buffer.send(data)[1] is None:
            self._watch(connection)

    def _close(self, fd: int, connection: GroundTruthConnection) -> None:
        self._broken += connection.conversation.broken_turns
        self._connections.pop(fd, None)
        self._epoll.unregister(fd)
        connection.sock.close()
        connection.send_buffer.closed = True

    def _send_due(self, now_perf_ns: int) -> None:
        due = self._due
        while due and due[0][0] <= now_perf_ns:
            moment, _, connection, send = heapq.heappop(due)
            self._send(moment, connection, send)
            now_perf_ns = time.perf_counter_ns()
        if due and due[0][0] != self._armed_perf_ns:
            self._armed_perf_ns = due[0][0]
            self._timer.arm(self._armed_perf_ns)

    def _send(self, due_perf_ns: int, connection: GroundTruthConnection, send: Send) -> None:
        if connection.send_buffer.closed:
            return
        before, after = connection.send_buffer.send(send.data)
        if after is None:
            self._watch(connection)
        turn = send.turn
        for mark in send.marks:
            turn.note_sent(mark, before, after, due_perf_ns)
        for samples in send.chunks:
            turn.note_chunk(samples, before, after)
        if DONE in send.marks:
            self._rows.append(turn.row())

    def _note_health(self, now_perf_ns: int) -> None:
        self._rows.append(
            {
                "kind": "health",
                "perf_ns": now_perf_ns,
                "cpu_ns": time.process_time_ns(),
                "frames": self._frames,
                "connections": len(self._connections),
                "broken_turns": self._broken + sum(c.conversation.broken_turns for c in self._connections.values()),
            }
        )

    def _write(self, file: BinaryIO) -> None:
        file.write(b"".join(orjson.dumps(row) + b"\n" for row in self._rows))
        file.flush()
        self._rows.clear()
