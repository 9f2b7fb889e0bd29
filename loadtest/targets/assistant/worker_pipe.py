"""Communication with a worker process over its standard streams, in frames of a header and a payload.

A frame is `<kind: u8> <id: u32> <length: u32> <payload>`, little-endian. The parent side uses asyncio; the worker side
uses blocking reads and writes. Engines that have global state or hold the interpreter lock run in such workers.
"""

import asyncio
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO, Final

_HEADER: Final = struct.Struct("<BII")

OnFrame = Callable[[int, int, bytes], None]


class WorkerGone(Exception):  # noqa: N818 - reads as what happened
    """The worker process has ended, or could not start."""


def read_frame(stream: BinaryIO) -> tuple[int, int, bytes] | None:
    """In the worker: return the next frame (kind, id, payload), or None if the parent has closed the pipe."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    kind, ident, length = _HEADER.unpack(header)
    return kind, ident, stream.read(length)


def write_frame(stream: BinaryIO, kind: int, ident: int, payload: bytes = b"") -> None:
    """In the worker: write one frame and flush it."""
    stream.write(_HEADER.pack(kind, ident, len(payload)) + payload)
    stream.flush()


def take_over_stdout() -> BinaryIO:
    """In the worker: return the pipe to the parent, and redirect what libraries print to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    pipe = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return pipe


async def end_process(process: asyncio.subprocess.Process, patience_s: float) -> None:
    """End a process that ends when its input closes: by that, and after so long by killing it."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(patience_s):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class WorkerProcess:
    """In the parent: one worker process. `on_frame(kind, id, payload)` is called on the event loop."""

    def __init__(self, command: Sequence[str], on_frame: OnFrame, on_gone: Callable[[], None]) -> None:
        self._command = command
        self._on_frame = on_frame
        self._on_gone = on_gone
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def start(self, ready_kind: int, timeout_s: float) -> None:
        """Start the worker and wait for its first frame, which must be of `ready_kind`. Raises WorkerGone."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(timeout_s):
                kind, _, payload = await self._read()
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            await self.stop()
            raise WorkerGone("the process exited or was not ready in time") from error
        if kind != ready_kind:
            await self.stop()
            raise WorkerGone(payload.decode(errors="replace"))
        self._reader = asyncio.create_task(self._read_on())

    def send(self, kind: int, ident: int, payload: bytes = b"") -> None:
        """Queue a frame for the worker; never blocks. Frames for a worker that has ended are discarded."""
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            return
        process.stdin.write(_HEADER.pack(kind, ident, len(payload)) + payload)

    async def stop(self) -> None:
        """Stop the process: first by closing its input, then by killing it."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._reader is not None:
            self._reader.cancel()
        await end_process(process, 1.0)

    async def _read_on(self) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self._on_frame(*await self._read())
        self._on_gone()

    async def _read(self) -> tuple[int, int, bytes]:
        process = self._process
        if process is None or process.stdout is None:
            raise asyncio.IncompleteReadError(b"", _HEADER.size)
        kind, ident, length = _HEADER.unpack(await process.stdout.readexactly(_HEADER.size))
        return kind, ident, await process.stdout.readexactly(length) if length else b""
