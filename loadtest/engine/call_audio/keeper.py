"""A worker's end of the process that writes the audio of calls: started with the worker, ended with it.

Read `CallAudioTap` first (what is reported of one call), then the queue and the process.
"""

import contextlib
import os
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Final

import gevent
import msgspec
import numpy as np

import loadtest
from loadtest.audio.pcm import Pcm16
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.engine.call_audio.messages import (
    HEAD_BYTES,
    CallOpened,
    KeeperMessage,
    KeeperMessageKind,
    head,
    ns_payload,
    turn_payload,
)
from loadtest.engine.outbox import Outbox
from telemetry.store.recordings.kept_call import KeptTurn

# Ten seconds of what 140 callers hear at 24 kHz.
MOST_WAITING_BYTES: Final = 64 << 20
# What is not audio is small, and goes beyond the bound as far as this.
_MOST_MESSAGES: Final = 500_000
_SLICE_BYTES: Final = 64 << 10
_SLICE_MESSAGES: Final = 64
_SAMPLE_BYTES: Final = 2
_SECOND_NS: Final = 1_000_000_000
_ROOT: Final = Path(loadtest.__file__).resolve().parents[1]
_BUFFER_BYTES: Final = 2**21
_MOST_SLICES_PER_TICK: Final = 4
# What arrives is stamped by the kernel, so it may be placed in the past by as long as the program did not look.
_SETTLED_AFTER_NS: Final = 5_000_000_000
_SETTLE_EVERY_NS: Final = 1_000_000_000
_HANDED_OVER_S: Final = 10.0
_WRITTEN_S: Final = 60.0


class CallAudioQueue:
    """Sends messages over a stream socket, which it makes non-blocking and owns. Nothing here waits.

    What the other process does not take fills the queue; beyond its bound, audio is dropped, and what is missing is
    reported in place of it. `dropped_ns` is how much that was; `failure` says why nothing is sent any more, None while
    it is.
    """

    def __init__(self, stream: socket.socket, *, most_bytes: int = MOST_WAITING_BYTES) -> None:
        stream.setblocking(False)
        self._stream = stream
        self._most_bytes = most_bytes
        self._messages: deque[KeeperMessage] = deque()
        self._message_bytes = 0
        self._outbox = Outbox(stream.send)
        self.dropped_ns = 0
        self.failure: str | None = None

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the other process has not taken."""
        return self._message_bytes + self._outbox.waiting_bytes

    def put(self, message: KeeperMessage) -> None:
        """Queue a message, or, in place of audio that there is no room for, how long it is."""
        size = len(message.payload) + HEAD_BYTES
        full = self.waiting_bytes + size > self._most_bytes or len(self._messages) >= _MOST_MESSAGES
        # Utterances take no memory: they are mapped, and all calls share them.
        if message.kind == KeeperMessageKind.PLAYED and (full or self.failure is not None):
            length_ns = len(message.payload) // _SAMPLE_BYTES * _SECOND_NS // max(1, message.rate_hz)
            self.dropped_ns += length_ns
            payload = ns_payload(length_ns)
            message = message._replace(kind=KeeperMessageKind.LOST, rate_hz=0, payload=payload)
            size = len(payload) + HEAD_BYTES
        if self.failure is None and len(self._messages) < 2 * _MOST_MESSAGES:
            self._messages.append(message)
            self._message_bytes += size

    def send_slice(self) -> bool:
        """Send a few messages; return whether the socket took them all and more are waiting."""
        if self.failure is not None:
            return False
        try:
            if self._outbox.waiting_bytes:
                self._outbox.flush()
            elif self._messages:
                self._outbox.push(self._next_slice())
        except OSError as error:
            self.failure = error.strerror or str(error)
            self._messages.clear()
            self._message_bytes, self._outbox = 0, Outbox(self._stream.send)
        return bool(self._messages) and not self._outbox.waiting_bytes

    def _next_slice(self) -> bytes:
        taken: list[bytes | memoryview] = []
        size = 0
        while self._messages and size < _SLICE_BYTES and len(taken) < _SLICE_MESSAGES:
            message = self._messages.popleft()
            taken += (head(message), message.payload)
            size += HEAD_BYTES + len(message.payload)
        self._message_bytes -= size
        return b"".join(taken)

    @property
    def is_empty(self) -> bool:
        """Whether everything has been handed over, or never will be."""
        return not self.waiting_bytes

    def close(self) -> None:
        """Signal that no more audio follows."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_WR)
        self._stream.close()


class CallAudioTap:
    """Queues what is heard and sent in one call. `number` is the call's in this process."""

    __slots__ = ("_ended_perf_ns", "_is_closed", "_keeps_audio", "_queue", "number")

    def __init__(self, queue: CallAudioQueue, number: int, *, keeps_audio: bool) -> None:
        self._queue = queue
        self.number = number
        self._keeps_audio = keeps_audio
        self._ended_perf_ns = 0
        self._is_closed = False

    @property
    def keeps_audio(self) -> bool:
        """Whether the call's audio is kept, not its texts alone."""
        return self._keeps_audio

    def played(self, playback: int, rate_hz: int, start_perf_ns: int, audio: bytes) -> None:
        """Audio of a reply is played from a moment."""
        self._queue.put(KeeperMessage(KeeperMessageKind.PLAYED, self.number, playback, rate_hz, start_perf_ns, audio))

    def stopped(self, playback: int, now_perf_ns: int) -> None:
        """Nothing of a playback is heard from this moment."""
        self._put(KeeperMessageKind.STOPPED, now_perf_ns, playback=playback)

    def began(self, first_sample_perf_ns: int) -> None:
        """The first sample of the call was spoken."""
        self._put(KeeperMessageKind.BEGAN, first_sample_perf_ns)

    def spoke(self, frame: int, clip: PreparedClip) -> None:
        """An utterance begins."""
        rendered = clip.rendered
        view = rendered.pcm.astype("<i2", copy=False).data.cast("B")
        self._queue.put(KeeperMessage(KeeperMessageKind.SPOKE, self.number, 0, rendered.rate_hz, frame, view))

    def muted(self, frame: int) -> None:
        """The utterance is broken off."""
        self._put(KeeperMessageKind.MUTED, frame)

    def hung_up(self, now_perf_ns: int) -> None:
        """The call has ended; turns may still be recorded."""
        if not self._ended_perf_ns:
            self._ended_perf_ns = now_perf_ns

    def recorded(self, turn: KeptTurn) -> None:
        """A turn of the call has been recorded."""
        self._put(KeeperMessageKind.TURN, 0, payload=turn_payload(turn))

    def close(self, now_perf_ns: int) -> None:
        """Nothing more comes of this call. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._put(KeeperMessageKind.CLOSE, self._ended_perf_ns or now_perf_ns)

    def _put(self, kind: KeeperMessageKind, at: int, *, playback: int = 0, payload: bytes = b"") -> None:
        self._queue.put(KeeperMessage(kind, self.number, playback, 0, at, payload))


class CallAudioKeeper:
    """Keeps the audio and the texts of a worker's calls, below a folder, by way of a process of its own."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError where the process cannot be started."""
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            path = os.environ.get("PYTHONPATH")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "loadtest.engine.call_audio.writer", str(folder)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{path}" if path else str(_ROOT)},
                # It outlives a worker that is killed, for as long as it takes to close the files.
                start_new_session=True,
            )
        self.queue = CallAudioQueue(ours)
        self._calls = 0
        self._settle_at_perf_ns = 0

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def background(self, line: int, rate_hz: int, pcm: Pcm16) -> None:
        """Yield what is sent between the utterances of a line."""
        payload = np.ascontiguousarray(pcm, dtype="<i2").tobytes()
        self.queue.put(KeeperMessage(KeeperMessageKind.BACKGROUND, 0, 0, rate_hz, line, payload))

    def tap(self, opened: CallOpened) -> CallAudioTap:
        """The tap of a new call."""
        self._calls += 1
        payload = msgspec.msgpack.encode(opened)
        self.queue.put(KeeperMessage(KeeperMessageKind.OPEN, self._calls, payload=payload))
        return CallAudioTap(self.queue, self._calls, keeps_audio=opened.keeps_audio)

    def send(self, now_perf_ns: int) -> None:
        """Send a few slices, on each tick. Each takes some 20 µs."""
        if now_perf_ns >= self._settle_at_perf_ns:
            self._settle_at_perf_ns = now_perf_ns + _SETTLE_EVERY_NS
            self.queue.put(KeeperMessage(KeeperMessageKind.SETTLED, at=now_perf_ns - _SETTLED_AFTER_NS))
        for _ in range(_MOST_SLICES_PER_TICK):
            if not self.queue.send_slice():
                return

    def close(self) -> str | None:
        """Hand over what waits, and wait until the files are written. Blocks only the calling greenlet.

        Returns a sentence about audio that was not kept; None where all of it was.
        """
        waited_s = 0.0
        while not self.queue.is_empty and waited_s < _HANDED_OVER_S:
            if not self.queue.send_slice():
                gevent.sleep(0.005)
                waited_s += 0.005
        is_handed_over = self.queue.is_empty
        self.queue.close()
        code = self._wait()
        if self.queue.failure is not None or code:
            why = self.queue.failure or f"it ended with code {code}"
            return f"audio of calls is missing: the process that writes it failed ({why})"
        if code is None or not is_handed_over:
            return "audio of calls is missing: the disk did not take it in time"
        if self.queue.dropped_ns:
            return f"{self.queue.dropped_ns / 1e9:.1f} s of audio are missing: the disk was too slow"
        return None

    def _wait(self) -> int | None:
        """The exit code of the process, None where it has not ended in time."""
        waited_s = 0.0
        while (code := self._process.poll()) is None and waited_s < _WRITTEN_S:
            gevent.sleep(0.02)
            waited_s += 0.02
        return code
