"""A worker's end of the process that writes the audio of calls: started with the worker, ended with it."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import gevent
import msgspec
import numpy as np

import loadtest
from loadtest.audio.pcm import Pcm16
from loadtest.engine.call_audio.messages import CallOpened, KeeperMessage, KeeperMessageKind
from loadtest.engine.call_audio.queue import CallAudioQueue
from loadtest.engine.call_audio.tap import CallAudioTap

_ROOT: Final = Path(loadtest.__file__).resolve().parents[1]
_BUFFER_BYTES: Final = 2**21
# Of all that the hub has to do between two ticks this comes last, and no slice begins once the next tick is due.
_MOST_SLICES_PER_TICK: Final = 4
# What arrives is stamped by the kernel, so it may be placed in the past by as long as the program did not look.
_SETTLED_AFTER_NS: Final = 5_000_000_000
_SETTLE_EVERY_NS: Final = 1_000_000_000
_HANDED_OVER_S: Final = 10.0
_WRITTEN_S: Final = 60.0


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

    def send_while_idle(self, now_perf_ns: int, next_tick_perf_ns: int) -> None:
        """Send a few slices between two ticks. Each takes some 20 µs."""
        if now_perf_ns >= self._settle_at_perf_ns:
            self._settle_at_perf_ns = now_perf_ns + _SETTLE_EVERY_NS
            self.queue.put(KeeperMessage(KeeperMessageKind.SETTLED, at=now_perf_ns - _SETTLED_AFTER_NS))
        if now_perf_ns >= next_tick_perf_ns:
            return
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
