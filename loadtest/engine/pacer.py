"""The pacer thread of a worker: sends its calls' frames on time, however long the interpreter is busy elsewhere.

The thread runs `pacer_loop.pace`, which needs no interpreter. Python changes what a socket sends under the socket's
mutex, for which neither side ever waits longer than one send takes. Needs Linux and Numba; elsewhere `open_pacer` says
why not, and the hub's ticker sends.
"""

import atexit
import contextlib
import hashlib
import importlib
import importlib.util
import itertools
import operator
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from gevent import monkey

from corpora.rendering.cache import cache_root
from loadtest.conversation.prepared_clip import FrameTable, PreparedClip
from loadtest.protocols.base import CountedHead
from loadtest.protocols.transports.masked_frames import FIXED, FIXED_MASK

_LOOP: Final = "loadtest.engine.pacer_loop"
MOST_SOCKETS: Final = 4096
# The frames whose lateness is kept of each socket, and the parts that may wait for it: 10 s and 80 s of 20 ms each.
KEPT_FRAMES: Final = 512
_MOST_PARTS: Final = 4096
_LOGGED_FRAMES: Final = 2**18
_LEAD_NS: Final = 6_000_000  # longer than the thread ever sleeps: it cannot oversleep a first frame
PHASE_NS: Final = 1_000_000
_MOST_TABLES: Final = 256
# What may wait of frames that are made when they are sent: more than a minute of most wires' audio.
_WAITING_BYTES: Final = 4 * 2**20


@dataclass(frozen=True, slots=True)
class OfferedFrame:
    """A frame that was offered to the socket: its number in the call, when it was due, offered, and handed over."""

    number: int
    due_perf_ns: int
    offered_perf_ns: int
    gone_perf_ns: int
    frame_bytes: int  # its size on the wire
    unsent_bytes: int | None  # that had not left this machine then; None: not known, or not asked


def _offered(columns: list[int], unsent_bytes: int | None) -> OfferedFrame | None:
    """Return a frame as the thread notes it; None if it was not offered."""
    return None if columns[0] < 0 else OfferedFrame(*columns, unsent_bytes)  # pyright: ignore[reportCallIssue]


class Phases:
    """The moments of a frame, 1 ms apart, over which streams are spread: not all of them are due at once."""

    def __init__(self) -> None:
        self._streams: list[int] = []

    def take(self, frame_ns: int, *, spacing: int = 1, together: int = 0) -> int:
        """Return the phase with the fewest streams, which then has one more: every `spacing`-th phase first, until
        these have `together` streams each."""
        size = frame_ns // PHASE_NS
        self._streams += [0] * (size - len(self._streams))
        phase = min(range(0, size, spacing), key=self._streams.__getitem__)
        if self._streams[phase] >= together:
            phase = min(range(size), key=self._streams.__getitem__)
        self._streams[phase] += 1
        return phase

    def give_back(self, phase: int) -> None:
        """Account for a stream that has ended."""
        self._streams[phase] -= 1

    def first_due(self, phase: int, frame_ns: int, earliest_perf_ns: int, base_perf_ns: int = 0) -> int:
        """Return the first moment of a phase; `base_perf_ns` is one of phase 0."""
        return earliest_perf_ns + (base_perf_ns + phase * PHASE_NS - earliest_perf_ns) % frame_ns


class FrameHead:
    """The head of each frame of a call over WebSocket, complete except for numbers, as the loop reads it.

    `table` has the columns that `pacer_loop` names, and then for each number where the text before it ends, and its
    step.
    """

    def __init__(self, head: CountedHead, mask: str, *, is_text: bool) -> None:
        self._numbers = np.frombuffer(head.numbers, np.int64)
        texts = [text.replace(b"\0", b"%") for text in head.pattern.replace(b"%%", b"\0").split(b"%d")]
        self._text = np.frombuffer(b"".join(texts) + b" ", np.uint8)  # never empty
        ends = list(itertools.accumulate(map(len, texts)))
        own_mask = -1 if mask != FIXED else int.from_bytes(FIXED_MASK, "little")
        addresses = self._text.ctypes.data, self._numbers.ctypes.data
        number_fields = [number for pair in zip(ends, head.steps, strict=False) for number in pair]
        first_byte = 0x81 if is_text else 0x82
        self.table = np.array([len(head.steps), *addresses, own_mask, first_byte, ends[-1], *number_fields], np.int64)
        self.frames = np.zeros(_WAITING_BYTES, np.uint8)  # memory that is not needed is not touched


class PacedSocket:
    """A socket that only the pacer thread and `push` write to, one at a time. Implements `base.SendBacklog`."""

    __slots__ = (
        "_cells",
        "_head",
        "_locks",
        "_messages",
        "_pacer",
        "_phase",
        "_tables",
        "index",
        "is_open",
    )

    def __init__(self, pacer: "Pacer", index: int, phase: int, head: FrameHead | None) -> None:
        self._head, self._locks = head, 0
        self._pacer, self.index, self._phase = pacer, index, phase
        self._cells = pacer.cells[index * pacer.loop.COLUMNS : (index + 1) * pacer.loop.COLUMNS]
        self._messages: list[bytes] = []  # that may wait, and tables that may be sent from: the row has addresses
        self._tables: list[_Table] = []
        self.is_open = True

    def __enter__(self) -> "memoryview[int]":
        """Lock the socket's row and return it: no frame is sent meanwhile. Who holds it may lock it again."""
        if not self._locks:
            self._pacer.lock(self.index)
        self._locks += 1
        return self._cells

    def __exit__(self, *raised: object) -> None:
        """Unlock the row."""
        self._locks -= 1
        if not self._locks:
            self._pacer.unlock(self.index)

    @property
    def is_numbered(self) -> bool:
        """Whether frames carry numbers."""
        return self._head is not None

    # What waits, as `loadtest.engine.transports.base.SendBacklog` describes it.

    @property
    def queued_bytes(self) -> int:
        """Bytes that had to wait, in total."""
        return self._cells[self._pacer.loop.QUEUED_BYTES]

    @property
    def drained_bytes(self) -> int:
        """The queued bytes that have been passed to the kernel."""
        return self._cells[self._pacer.loop.DRAINED_BYTES]

    @property
    def waiting_bytes(self) -> int:
        """Bytes that have not been passed to the kernel."""
        return self.queued_bytes - self.drained_bytes

    def push(self, data: bytes) -> bool:
        """Send what the socket accepts now and queue the rest; return whether it accepted everything.

        Raises OSError for a broken connection.
        """
        if not self.is_open:
            return True
        if self._messages and not self.waiting_bytes:
            self._messages.clear()
        accepted = self._pacer.send(self.index, data, is_locked=self._locks > 0)
        if not accepted:
            self._messages.append(data)
        self.raise_broken()
        return accepted

    def raise_broken(self) -> None:
        """Raise OSError if the connection is broken."""
        if number := self._cells[self._pacer.loop.ERRNO]:
            raise OSError(number, os.strerror(number))

    # Audio.

    def begin(self, background: Sequence[bytes], frame_ns: int, now_perf_ns: int) -> int:
        """Begin to send the background, one frame after the other; return when the first one is due."""
        # Calls begin with different frames of one background, of which one copy is enough.
        start = min(range(len(background)), key=lambda at: id(background[at]))
        loop, table = self._pacer.loop, self._keep((*background[start:], *background[:start]))
        first_due_perf_ns = self._pacer.phases.first_due(self._phase, frame_ns, now_perf_ns + _LEAD_NS)
        with self as row:
            row[loop.BACKGROUND], row[loop.BACKGROUND_ENDS] = table.data_address, table.ends_address
            row[loop.BACKGROUND_COUNT], row[loop.FRAME_NS], row[loop.DUE] = len(background), frame_ns, first_due_perf_ns
            row[loop.BACKGROUND_NEXT] = -start % len(background)
            self._pacer.wake[self.index] = first_due_perf_ns
        return first_due_perf_ns

    def say(self, clip: PreparedClip, after: int) -> int:
        """Begin an utterance after so many more frames of the background; return its number among the call's frames."""
        loop, table = self._pacer.loop, self._keep(clip.frames)
        with self as row:
            row[loop.CLIP], row[loop.CLIP_ENDS] = table.data_address, table.ends_address
            row[loop.CLIP_COUNT], row[loop.CLIP_NEXT] = len(clip.frames), -after
            row[loop.SPEECH_START], row[loop.SPEECH_END] = clip.speech_start_frame, clip.speech_end_frame
            row[loop.START_FRAME] = row[loop.END_FRAME] = -1
            return row[loop.SENT] + after

    def overdue(self, now_perf_ns: int) -> int:
        """Return how many frames were due before now and have not been offered."""
        late_ns = now_perf_ns - self._cells[self._pacer.loop.DUE]
        return -(-late_ns // self._cells[self._pacer.loop.FRAME_NS]) if late_ns > 0 else 0

    def mute(self) -> int:
        """Return to the background; return how many frames have been sent."""
        with self as row:
            row[self._pacer.loop.CLIP_COUNT] = 0
            return row[self._pacer.loop.SENT]

    def stop(self) -> None:
        """Send no more frames; what waits is still sent."""
        if self.is_open:
            with self as row:
                row[self._pacer.loop.DUE] = self._pacer.loop.NEVER
                row[self._pacer.loop.CLIP_COUNT] = 0
            self.set_deadline(self._pacer.loop.NEVER)

    def lateness_ns(self, first: int, end: int) -> list[int]:
        """Return how late each of the frames with these numbers was handed over, as far as it is still known."""
        return self._pacer.lateness_ns(self.index, max(first, end - KEPT_FRAMES), end)

    @property
    def is_saying(self) -> bool:
        """Whether frames of an utterance are still to be sent."""
        return self._cells[self._pacer.loop.CLIP_COUNT] != 0

    @property
    def sent(self) -> int:
        """Number of frames offered to the socket."""
        return self._cells[self._pacer.loop.SENT]

    @property
    def held_up(self) -> int:
        """Number of frames that had to wait."""
        return self._cells[self._pacer.loop.HELD_UP]

    def speech(self) -> tuple[OfferedFrame | None, OfferedFrame | None]:
        """Return the frames with the first and the last sample of speech of the utterance, as far as they were sent."""
        loop, cells = self._pacer.loop, self._cells
        if cells[loop.START_FRAME] < 0 and cells[loop.END_FRAME] < 0:
            return None, None
        with self as row:
            start = row[loop.START_FRAME : loop.START_BYTES + 1].tolist()
            end = row[loop.END_FRAME : loop.END_BYTES + 1].tolist()
            unsent_bytes = None if row[loop.END_UNSENT] < 0 else row[loop.END_UNSENT]
        return _offered(start, None), _offered(end, unsent_bytes)

    def count_from(self, number: int | None, *, counts: bool) -> int:
        """Note how long frames wait that have this number or a later one; None: those that are sent from now on."""
        loop = self._pacer.loop
        with self as row:
            first = row[loop.SENT] if number is None else number
            row[loop.COUNTED_FROM], row[loop.BLOCKED_WORST] = first if counts else loop.NEVER, 0
        return first

    def blocked_ns(self, now_perf_ns: int | None) -> int:
        """Return how long a frame that counts waited at the most; with a moment, those that still wait count until
        then."""
        loop = self._pacer.loop
        if not self._cells[loop.QUEUED_BYTES]:
            return 0
        with self as row:
            worst_ns, first = row[loop.BLOCKED_WORST], row[loop.COUNTED_FROM]
            offered_perf_ns = [part[loop.PART_OFFERED] for part in self._parts(row) if part[loop.PART_FRAME] >= first]
        if now_perf_ns is None or not offered_perf_ns:
            return worst_ns
        return max(worst_ns, now_perf_ns - min(offered_perf_ns))

    @property
    def waits_since_perf_ns(self) -> int | None:
        """The time at which the first waiting frame was offered to the socket; None if none waits."""
        if not self.waiting_bytes:
            return None
        with self as row:
            return next((part[self._pacer.loop.PART_OFFERED] for part in self._parts(row)), None)

    def _parts(self, row: "memoryview[int]") -> list[list[int]]:
        """Return what waits, as columns of a part. The socket must be locked."""
        first, last = row[self._pacer.loop.QUEUE_FIRST], row[self._pacer.loop.QUEUE_LAST]
        return [] if first == last else self._pacer.parts(self.index, first, last)

    def set_deadline(self, perf_ns: int) -> None:
        """Report the socket in `Pacer.collect` at a moment."""
        self._pacer.deadlines[self.index] = perf_ns

    def _keep(self, frames: Sequence[bytes]) -> "_Table":
        """Return the table of some frames, which lives as long as this socket: some of them may be waiting."""
        for known in self._tables:
            if known.frames is frames:
                return known
        table = self._pacer.table(frames)
        self._tables.append(table)
        return table

    def close(self) -> None:
        """Give the place back. Nothing is written to the descriptor once this has returned. Idempotent."""
        if self.is_open:
            self.is_open = False
            self._pacer.release(self, self._phase)


class _Table:
    """Frames that lie one behind the other in memory, with the end of each, and the addresses of both."""

    __slots__ = ("_held", "data_address", "ends_address", "frames")

    def __init__(self, frames: Sequence[bytes]) -> None:
        self.frames = frames
        if isinstance(frames, FrameTable):
            data, ends = np.frombuffer(frames.data, np.uint8), np.frombuffer(frames.ends, np.uint32)
        else:
            data = np.frombuffer(b"".join(frames), np.uint8)
            ends = np.cumsum([len(frame) for frame in frames], dtype=np.uint32)
        self._held = data, ends
        self.data_address, self.ends_address = int(data.ctypes.data), int(ends.ctypes.data)


def _are_same(known: Sequence[bytes], frames: Sequence[bytes]) -> bool:
    return len(known) == len(frames) and all(map(operator.is_, known, frames))


class Pacer:
    """The thread and what it shares with Python. Make it with `open_pacer`; the thread starts with the first socket."""

    def __init__(self, loop: Any, prepare: Callable[[], object]) -> None:
        """`loop` is the module `pacer_loop`. Compiles its functions, or loads them from the cache."""
        self.loop = loop
        self._prepare = prepare
        self._shared = loop.Shared(
            control=np.zeros(loop.CONTROLS, np.int64),
            places=np.zeros((MOST_SOCKETS, loop.COLUMNS), np.int64),
            wake=np.full(MOST_SOCKETS, loop.NEVER, np.int64),
            news=np.zeros(MOST_SOCKETS, np.int64),
            queues=np.zeros((MOST_SOCKETS, _MOST_PARTS, 4), np.int64),
            lateness=np.zeros((MOST_SOCKETS, KEPT_FRAMES), np.int64),
            log=np.zeros(_LOGGED_FRAMES, np.int64),
            mutexes=np.zeros((MOST_SOCKETS + 1) * loop.MUTEX_BYTES, np.uint8),
        )
        self.cells: memoryview[int] = self._shared.places.data.cast("B").cast("q")
        self._lateness: memoryview[int] = self._shared.lateness.data.cast("B").cast("q")
        self.wake = self._shared.wake
        self.deadlines = np.full(MOST_SOCKETS, loop.NEVER, np.int64)
        self._scratch, self._own_scratch = np.zeros(2, np.int64), np.zeros(2, np.int64)
        self._collected = np.zeros(MOST_SOCKETS, np.int64)
        self._free = list(range(MOST_SOCKETS - 1, -1, -1))
        self._tables: dict[int, _Table] = {}  # by the identity of frames, or of the first one
        # With whom to tell that the connection is broken: the socket's owner, which holds it, until it closes it.
        self._sockets: dict[int, tuple[PacedSocket, Callable[[OSError], None]]] = {}
        self._is_idle = True  # no socket is open, and all that was sent has been collected
        self.phases = Phases()
        self._logged = 0
        self._process_id = 0  # of the process in which the thread runs
        self._stopped: Any = None  # a lock that the thread holds while it runs
        self._compile()

    def _compile(self) -> None:
        """Run every function once."""
        self._shared.control[self.loop.STOP] = 1
        self._run()
        self._shared.control[self.loop.STOP] = 0
        self.lock(0)
        self.unlock(0)
        self._shared.places[0, self.loop.FD] = -1
        self.send(0, b" ")
        self._shared.places[0] = 0
        self.wake[0] = self.loop.NEVER
        self.collect(0)

    def _run(self) -> None:
        self.loop.pace(self._shared, self._scratch)

    def add(
        self, fd: int, frame_ns: int, broke: Callable[[OSError], None], head: FrameHead | None = None
    ) -> PacedSocket | None:
        """Take over a connected socket whose owner keeps the descriptor open; None if there is no place left.

        `broke` is called with the error that broke the connection, by `collect`. `head` is what begins each frame.
        """
        if not self._free:
            return None
        if self._stopped is None:
            self._start()
        index, loop = self._free.pop(), self.loop
        self.lock(index)
        row = self._shared.places[index]
        row[:] = 0
        row[loop.FD], row[loop.DUE], row[loop.COUNTED_FROM] = fd, loop.NEVER, loop.NEVER
        row[loop.START_FRAME] = row[loop.END_FRAME] = -1
        if head is not None:
            row[loop.HEAD], row[loop.FRAMES] = head.table.ctypes.data, head.frames.ctypes.data
            row[loop.FRAMES_BYTES] = len(head.frames)
        self._shared.news[index] = 0
        self._shared.control[loop.PLACES] = max(self._shared.control[loop.PLACES], index + 1)
        self.unlock(index)
        socket = PacedSocket(self, index, self.phases.take(frame_ns), head)
        self._sockets[index] = socket, broke
        self._is_idle = False
        return socket

    def release(self, socket: PacedSocket, phase: int) -> None:
        """Take a place back: from now on, the thread does not write to its descriptor."""
        index = socket.index
        with socket as row:
            row[self.loop.FD] = -1
            row[self.loop.DUE] = self.wake[index] = self.deadlines[index] = self.loop.NEVER
            self._shared.news[index] = 0
        self.phases.give_back(phase)
        del self._sockets[index]
        self._free.append(index)

    @property
    def has_failed(self) -> bool:
        """Whether the thread has ended by itself: no frame is sent any more."""
        return self._stopped is not None and not self._stopped.locked()

    def lock(self, index: int) -> None:
        """Lock a row. The thread holds it for one send at the most."""
        self.loop.lock(self._shared.mutexes, index)

    def unlock(self, index: int) -> None:
        """Unlock a row."""
        self.loop.unlock(self._shared.mutexes, index)

    def send(self, index: int, data: bytes, *, is_locked: bool = False) -> bool:
        """Send bytes behind what waits, on a row that is locked, or not; return whether all of them were accepted."""
        return self.loop.send_message(self._shared, self._own_scratch, index, np.frombuffer(data, np.uint8), is_locked)

    def lateness_ns(self, index: int, first: int, end: int) -> list[int]:
        """Return how late each of these frames of a socket was handed over."""
        row, count = index * KEPT_FRAMES, end - first
        if count <= 0:
            return []
        begin = row + first % KEPT_FRAMES
        late = self._lateness[begin : min(begin + count, row + KEPT_FRAMES)].tolist()
        return late + self._lateness[row : row + count - len(late)].tolist()

    def parts(self, index: int, first: int, last: int) -> list[list[int]]:
        """The parts of a socket's queue, from the first to the last; the socket must be locked."""
        return self._shared.queues[index].take(range(first, last), axis=0, mode="wrap").tolist()

    def collect(self, now_perf_ns: int) -> tuple[list[PacedSocket], list[int]]:
        """Return the sockets that have news or whose deadline has come, and the lateness of each frame sent since."""
        if self._is_idle:
            return [], []
        self._is_idle = not self._sockets
        count, logged = self.loop.collect(self._shared, self.deadlines, self._collected, now_perf_ns)
        seen, first, self._logged = self._logged, max(self._logged, logged - _LOGGED_FRAMES), logged
        begin, end = first % _LOGGED_FRAMES, logged % _LOGGED_FRAMES
        if first == logged:
            late: list[int] = []
        elif begin < end:
            late = self._shared.log[begin:end].tolist()
        else:
            late = self._shared.log[begin:].tolist() + self._shared.log[:end].tolist()
        late += [max(late, default=0)] * (first - seen)  # overwritten meanwhile
        collected = [self._sockets[index] for index in self._collected[:count].tolist() if index in self._sockets]
        for socket, broke in collected:
            try:
                socket.raise_broken()
            except OSError as error:
                broke(error)
        return [socket for socket, _ in collected], late

    def table(self, frames: Sequence[bytes]) -> _Table:
        """Return the table of some frames, which calls share: clips, and the background."""
        key = id(frames)
        table = self._tables.pop(key, None)
        if table is None or table.frames is not frames:
            if not isinstance(frames, FrameTable):  # copies of the background differ in nothing
                key = id(frames[0])
                table = self._tables.pop(key, None)
            if table is None or not _are_same(table.frames, frames):
                table = _Table(frames)
        if len(self._tables) >= _MOST_TABLES:
            del self._tables[next(iter(self._tables))]  # the one that was not used for longest
        self._tables[key] = table
        return table

    def _start(self) -> None:
        """Start the thread: a real one, whatever gevent has patched."""
        self._process_id = os.getpid()
        self._stopped = monkey.get_original("_thread", "allocate_lock")()
        self._stopped.acquire()
        atexit.register(self.close)  # the thread must not outlive the memory that it uses
        monkey.get_original("_thread", "start_new_thread")(self._serve, ())

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread
        with contextlib.suppress(OSError):
            self._prepare()
        try:
            self._run()
        finally:
            self._stopped.release()

    def close(self) -> None:
        """Stop the thread and wait for its end. Idempotent."""
        self._shared.control[self.loop.STOP] = 1
        if self._stopped is not None and self._process_id == os.getpid():  # a fork has no thread to wait for
            self._stopped.acquire()
            self._stopped = None
            atexit.unregister(self.close)


def open_pacer(prepare: Callable[[], object] = lambda: None) -> tuple[Pacer | None, str]:
    """Return a pacer, or None and why there is none. Takes seconds once a machine, then half a second.

    Its thread calls `prepare` when it starts, for instance to ask for priority.

    The compiled functions are kept in our own cache folder; where it cannot be written, each process compiles its own.
    """
    if not sys.platform.startswith("linux"):
        return None, "needs Linux"
    try:
        numba: Any = importlib.import_module("numba")
        numba.config.CACHE_DIR = numba.config.CACHE_DIR or str(_compiled_folder())
        loop: Any = importlib.import_module(_LOOP)
        try:
            return Pacer(loop, prepare), ""
        except Exception:  # noqa: BLE001 - what is in the cache may be damaged, or the disk full
            numba.config.CACHE_DIR = ""
            return Pacer(importlib.reload(loop), prepare), ""
    except Exception as error:  # noqa: BLE001 - whatever the compiler fails of, calls can be made without it
        return None, f"{type(error).__name__}: {error}".splitlines()[0]


def _compiled_folder() -> Path:
    """Return where the compiled functions are kept: Numba cannot read what it kept of another version of their
    source."""
    source = importlib.util.find_spec(_LOOP)
    assert source is not None and source.origin is not None  # noqa: S101, PT018 - it is a module of this package
    version = hashlib.sha256(Path(source.origin).read_bytes()).hexdigest()
    return cache_root() / "compiled" / version[:16]
