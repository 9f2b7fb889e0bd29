"""The engine's end of a process for media, WebRTC or LiveKit: started for the first call, ended with the engine."""

import contextlib
import importlib.util
import os
import shlex
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gevent
import gevent.event
import msgspec

import loadtest
from loadtest.engine.connection import ConnectionParts
from loadtest.engine.local_limits import LocalLimits
from loadtest.engine.outbox import Bytes, Outbox
from loadtest.engine.webrtc.messages import (
    HANDED_OVER,
    PACKET,
    Arrived,
    Deframer,
    LinkKind,
    Lost,
    command,
    frame_command,
)
from loadtest.errors import InstrumentError, UsageError
from loadtest.protocols.base import Message
from loadtest.protocols.room_items import RoomItem
from loadtest.protocols.webrtc_items import ChannelOpen, LocalOffer, PeerAudio, PeerQuiet, PeerReport, WebRtcItem

if TYPE_CHECKING:
    from loadtest.engine.transports.webrtc import WebRtcTransport

RATE_HZ: Final = 48_000
_ROOT: Final = Path(loadtest.__file__).resolve().parents[1]
_BUFFER_BYTES: Final = 2**21
_READ_BYTES: Final = 2**18
_MOST_READS: Final = 8
_START_S: Final = 60.0
_END_S: Final = 3.0
_WRITE: Final = 2


@dataclass(frozen=True, slots=True)
class ProcessKind:
    """The wire that a process carries, its module, the package that it needs, and the requirements of the extra with
    that."""

    calls: str
    module: str
    package: str
    requirements: tuple[str, ...]

    @property
    def missing(self) -> str:
        """The sentence for a machine without the package. Its command works in a clone as well as where voiceprobe is
        installed: it names this interpreter, and no distribution of ours, which no index may have."""
        package = self.package.partition(".")[0]
        command = shlex.join((_shown_interpreter(), "-m", "pip", "install", *self.requirements))
        return f"{self.calls} need the package {package}; install it with: {command}"


def _shown_interpreter() -> str:
    """Return this interpreter, as it is called from the current folder."""
    path = Path(sys.executable)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


WEBRTC: Final = ProcessKind("calls over WebRTC", "loadtest.engine.webrtc.serving", "aiortc", ("aiortc>=1.13",))
LIVEKIT: Final = ProcessKind(
    "calls in LiveKit's rooms",
    "loadtest.engine.livekit_room.serving",
    "livekit.rtc",
    ("livekit>=1.0", "livekit-api>=1.0"),
)


class MediaProcess:
    """The process of one engine for one kind of media. Implements `loadtest.engine.watch.ReadableSocket`."""

    def __init__(self, parts: ConnectionParts, kind: ProcessKind = WEBRTC) -> None:
        self._parts = parts
        self._kind = kind
        self._owners: dict[int, WebRtcTransport] = {}
        self._next_call = 1
        self._process: subprocess.Popen[bytes] | None = None
        self._fd = -1
        self._socket: socket.socket | None = None
        self._outbox = Outbox(self._write)
        self._deframer = Deframer()
        self._writable: Any = None
        self._ready = gevent.event.Event()

    @property
    def pid(self) -> int | None:
        """The number of the process, None while there is none."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process if there is none, and wait until it is ready. Blocks only the calling greenlet.

        Raises UsageError without its package, and InstrumentError if the process does not start.
        """
        if self._process is None:
            if not is_installed(self._kind.package):
                raise UsageError(self._kind.missing)
            try:
                self._spawn()
            except OSError as error:
                sentence = f"the process for {self._kind.calls} cannot be started: {error}"
                raise LocalLimits().exhausted(error) or InstrumentError(sentence) from error
        if not self._ready.wait(_START_S) or self._process is None:
            self.close()
            raise InstrumentError(
                f"the process for {self._kind.calls} did not start; "
                f"run `python -c 'import {self._kind.package}'` to see what is wrong"
            )
        _share_priority(self._process.pid)

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = self._start_with(ours, theirs)
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        self._socket, self._fd = ours, ours.fileno()
        self._outbox, self._deframer = Outbox(self._write), Deframer()
        self._ready.clear()
        self._parts.watch.add(self._fd, self, stamped=False)

    def _start_with(self, ours: socket.socket, theirs: socket.socket) -> "subprocess.Popen[bytes]":
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        path = os.environ.get("PYTHONPATH")
        environment = {**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{path}" if path else str(_ROOT)}
        number = theirs.fileno()
        return subprocess.Popen(
            [sys.executable, "-m", self._kind.module, str(number)],
            pass_fds=(number,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # what interrupts us lets our calls end first
        )

    # Calls.

    def register(self, owner: "WebRtcTransport") -> int:
        """Return the number of a new call."""
        call, self._next_call = self._next_call, self._next_call + 1
        self._owners[call] = owner
        return call

    def forget(self, call: int) -> None:
        """Pass nothing on to a call any more."""
        self._owners.pop(call, None)

    def send(self, kind: LinkKind, call: int, data: bytes = b"") -> None:
        """Send a message about a call."""
        self._push(command(kind, call, data))

    def send_frame(self, call: int, pcm: bytes) -> None:
        """Send a frame of audio, with the moment at which it was handed over."""
        self._push(frame_command(call, self._parts.clocks.perf_ns(), pcm))

    def _push(self, data: bytes) -> None:
        if self._socket is None:
            return
        try:
            taken = self._outbox.push(data)
        except OSError as error:
            self._gone(error)
            return
        if not taken and self._writable is None:
            self._writable = self._parts.loop.io(self._fd, _WRITE)
            self._writable.start(self._flush)

    def _write(self, data: Bytes) -> int:
        return os.write(self._fd, data)

    def _flush(self) -> None:
        try:
            empty = self._outbox.flush()
        except OSError as error:
            self._gone(error)
            return
        if empty:
            self._stop_writing()

    def _stop_writing(self) -> None:
        watcher, self._writable = self._writable, None
        if watcher is not None:
            watcher.stop()
            watcher.close()

    # On the hub.

    def readable(self) -> None:
        """Read what the process has sent and pass it on."""
        for _ in range(_MOST_READS):
            if self._socket is None:
                return
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self._gone(error)
                return
            if not data:
                self._gone(EOFError("it ended"))
                return
            for message in self._deframer.arrivals(data):
                self._pass_on(message)
            if len(data) < _READ_BYTES:
                return

    def failed(self, error: Exception) -> None:
        """End all calls: what the process sends cannot be read."""
        self._gone(error)

    def _pass_on(self, message: Arrived) -> None:
        if message.kind == LinkKind.STARTED:
            self._ready.set()
            return
        owner = self._owners.get(message.call)
        if owner is None:
            return
        try:
            _deliver(owner, message)
        except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
            owner.broken(error)

    def _gone(self, error: Exception) -> None:
        """The process has ended: so have its calls, through a fault of ours. The next call starts another one."""
        owners = list(self._owners.values())
        self.close()
        for owner in owners:
            owner.broken(InstrumentError(f"the process for {self._kind.calls} is gone: {error}"))

    def close(self) -> None:
        """End the process. Idempotent."""
        process, self._process = self._process, None
        mine, self._socket = self._socket, None
        self._owners.clear()
        self._stop_writing()
        self._ready.set()
        if mine is not None:
            self._parts.watch.remove(self._fd)
            mine.close()
        if process is not None:
            gevent.spawn(_reap, process) if gevent.getcurrent() is gevent.get_hub() else _reap(process)


def _share_priority(pid: int) -> None:
    """Give the process the real-time priority that this one has, if any: children do not inherit it."""
    if not sys.platform.startswith("linux"):
        return
    policy = os.sched_getscheduler(0)
    if policy & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, policy, os.sched_getparam(0))


def _reap(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the process, which ends when its socket is closed."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
        return
    process.kill()
    process.wait()


def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing more than its parents."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _item(message: Arrived) -> WebRtcItem | RoomItem | Message | None:
    """Return what a call gets of a message, None for a message about the call."""
    match message.kind:
        case LinkKind.AUDIO:
            lost, jitter_ns = PACKET.unpack_from(message.data)
            return PeerAudio(message.data[PACKET.size :], RATE_HZ, lost, jitter_ns)
        case LinkKind.TEXT:
            return message.data.decode()
        case LinkKind.BINARY:
            return message.data
        case LinkKind.OFFER:
            return LocalOffer(message.data.decode())
        case LinkKind.CHANNEL_OPEN:
            return ChannelOpen()
        case LinkKind.ROOM:
            return msgspec.json.decode(message.data, type=RoomItem)
        case LinkKind.QUIET:
            return PeerQuiet()
        case LinkKind.REPORT:
            return PeerReport(*PACKET.unpack(message.data))
        case _:
            return None


def _deliver(owner: "WebRtcTransport", message: Arrived) -> None:
    item = _item(message)
    if item is not None:
        owner.arrived(message.stamp_perf_ns, message.lag_bound_ns, (item,))
    elif message.kind == LinkKind.SENT_LATE:
        owner.sent_late(HANDED_OVER.unpack(message.data)[0])
    elif message.kind == LinkKind.STATE:
        owner.state(message.data.decode())
    elif message.kind == LinkKind.LOST:
        lost = msgspec.json.decode(message.data, type=Lost)
        if lost.failure is None:
            owner.broken(InstrumentError(lost.reason))
        else:
            owner.lost(lost.reason, lost.failure)
    elif message.kind == LinkKind.CLOSED:
        owner.ended()
