"""Speech recognition in a pool of worker processes; each utterance stays with one worker."""

import asyncio
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadtest.errors import UsageError
from loadtest.targets.assistant.asr import frames
from loadtest.targets.assistant.worker_pipe import WorkerGone, WorkerProcess

_START_TIMEOUT_S: Final = 60.0
_FINAL_TIMEOUT_S: Final = 20.0


class WorkerAsr:
    """A recognizer in `workers` processes, each started by `command`. When one dies, its utterances get empty
    transcripts and it is replaced. `hint` says how to mend what keeps them from starting."""

    def __init__(self, name: str, command: Sequence[str], workers: int, hint: str) -> None:
        self._name = name
        self._hint = hint
        self._pool = [_PooledWorker(command) for _ in range(workers)]
        self._next_id = 0

    async def start(self) -> None:
        """See `AsrEngine`."""
        try:
            await asyncio.gather(*(pooled.start() for pooled in self._pool))
        except WorkerGone as gone:
            await self.stop()
            raise UsageError(f"{self._name} cannot be used: {gone}; {self._hint}.") from gone

    def open(self, rate_hz: int) -> "WorkerAsrStream":
        """See `AsrEngine`. Uses the worker with the fewest utterances in progress."""
        self._next_id += 1
        return WorkerAsrStream(min(self._pool, key=lambda pooled: len(pooled.answers)), self._next_id, rate_hz)

    async def stop(self) -> None:
        """See `AsrEngine`."""
        await asyncio.gather(*(pooled.stop() for pooled in self._pool))


class _PooledWorker:
    """One worker of the pool, and the utterances that wait for its answers."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._worker = self._new_worker()
        self._restart: asyncio.Task[None] | None = None
        self._stopping = False
        self.answers: dict[int, asyncio.Queue[tuple[int, bytes]]] = {}

    async def start(self) -> None:
        await self._worker.start(frames.READY, _START_TIMEOUT_S)

    def send(self, kind: int, ident: int, payload: bytes = b"") -> None:
        self._worker.send(kind, ident, payload)

    async def stop(self) -> None:
        self._stopping = True
        if self._restart is not None:
            self._restart.cancel()
        await self._worker.stop()

    def _new_worker(self) -> WorkerProcess:
        return WorkerProcess(self._command, self._on_frame, self._on_gone)

    def _on_frame(self, kind: int, ident: int, payload: bytes) -> None:
        if (answers := self.answers.get(ident)) is not None:
            answers.put_nowait((kind, payload))

    def _on_gone(self) -> None:
        for answers in self.answers.values():
            answers.put_nowait((frames.FAILED, b""))
        if not self._stopping:
            self._worker = self._new_worker()
            self._restart = asyncio.create_task(self.start())


class WorkerAsrStream:
    """One utterance. See `AsrStream`."""

    def __init__(self, pooled: _PooledWorker, ident: int, rate_hz: int) -> None:
        self._worker = pooled
        self._ident = ident
        self._answers: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        pooled.answers[ident] = self._answers
        pooled.send(frames.OPEN, ident, struct.pack("<I", rate_hz))

    def feed(self, pcm: NDArray[np.int16]) -> None:
        """See `AsrStream`."""
        self._worker.send(frames.AUDIO, self._ident, pcm.tobytes())

    async def partial(self) -> str:
        """See `AsrStream`."""
        self._worker.send(frames.PARTIAL, self._ident)
        payload = await self._answer(frames.PARTIAL)
        return "" if payload is None else payload.decode()

    async def finish(self, silent_samples: int) -> str:
        """See `AsrStream`."""
        self._worker.send(frames.FINISH, self._ident, struct.pack("<I", silent_samples))
        payload = await self._answer(frames.FINAL)
        self._worker.answers.pop(self._ident, None)
        return "" if payload is None else payload.decode()

    def abandon(self) -> None:
        """See `AsrStream`."""
        if self._worker.answers.pop(self._ident, None) is not None:
            self._worker.send(frames.ABANDON, self._ident)

    async def _answer(self, wanted: int) -> bytes | None:
        try:
            async with asyncio.timeout(_FINAL_TIMEOUT_S):
                while True:
                    kind, payload = await self._answers.get()
                    if kind == frames.FAILED:
                        return None
                    if kind == wanted:
                        return payload
        except TimeoutError:
            return None
