"""Speech synthesis in a process of its own, which sends a sentence piece by piece."""

import asyncio
import struct
from collections.abc import AsyncGenerator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadtest.errors import UsageError
from loadtest.targets.assistant.tts import frames
from loadtest.targets.assistant.tts.base import TtsFailed
from loadtest.targets.assistant.worker_pipe import WorkerGone, WorkerProcess

_START_TIMEOUT_S: Final = 20.0
_PIECE_TIMEOUT_S: Final = 5.0


class WorkerTts:
    """A voice in a process that `command` starts. One that died is restarted for the next sentence."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self._name = name
        self._command = command
        self._worker: WorkerProcess | None = None
        self._starting = asyncio.Lock()
        self._next_id = 0
        self._pieces: dict[int, asyncio.Queue[bytes | None]] = {}

    async def start(self) -> None:
        """See `TtsEngine`."""
        try:
            await self._ready()
        except WorkerGone as gone:
            raise UsageError(f"{self._name} cannot be used: {gone}; choose --tts scripted.") from gone

    async def speak(self, sentence: str, rate_hz: int) -> AsyncGenerator[NDArray[np.int16]]:
        """See `TtsEngine`."""
        try:
            worker = await self._ready()
        except WorkerGone as gone:
            raise TtsFailed(f"{self._name} did not start: {gone}") from gone
        self._next_id += 1
        ident, pieces = self._next_id, asyncio.Queue[bytes | None]()
        self._pieces[ident] = pieces
        worker.send(frames.SPEAK, ident, struct.pack("<I", rate_hz) + sentence.encode())
        try:
            while True:
                async with asyncio.timeout(_PIECE_TIMEOUT_S):
                    piece = await pieces.get()
                if piece is None:
                    raise TtsFailed(f"{self._name} exited or rejected the sentence")
                if not piece:
                    return
                yield np.frombuffer(piece, np.int16)
        except TimeoutError as error:
            raise TtsFailed(f"{self._name} stopped sending") from error
        finally:
            self._pieces.pop(ident, None)

    async def stop(self) -> None:
        """See `TtsEngine`."""
        if self._worker is not None:
            await self._worker.stop()
            self._worker = None

    async def _ready(self) -> WorkerProcess:
        async with self._starting:
            if self._worker is None:
                worker = WorkerProcess(self._command, self._on_frame, self._on_gone)
                await worker.start(frames.READY, _START_TIMEOUT_S)
                self._worker = worker
            return self._worker

    def _on_frame(self, kind: int, ident: int, payload: bytes) -> None:
        pieces = self._pieces.get(ident)
        if pieces is None:
            return
        if kind == frames.PIECE:
            pieces.put_nowait(payload)
        else:
            pieces.put_nowait(b"" if kind == frames.END else None)

    def _on_gone(self) -> None:
        self._worker = None
        for pieces in self._pieces.values():
            pieces.put_nowait(None)
