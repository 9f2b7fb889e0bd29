"""Engines in processes of their own, asked over pipes: recognizers, voices, embeddings. `real.worker` is their side."""

import asyncio
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from loadtest.errors import UsageError
from loadtest.targets.assistant.endpointing import ProbabilityVad, SpeechDetection
from loadtest.targets.assistant.interfaces import (
    AsrEngine,
    AsrStream,
    AssistantEngine,
    Embedder,
    Pcm,
    TtsEngine,
    TtsFailed,
    Vector,
)
from loadtest.targets.assistant.real import worker as kinds

_START_TIMEOUT_S: Final = 60.0
_FINAL_TIMEOUT_S: Final = 20.0
_PIECE_TIMEOUT_S: Final = 5.0
_VECTOR_TIMEOUT_S: Final = 5.0
_ACTIVITY_TIMEOUT_S: Final = 5.0


class WorkerGone(Exception):  # noqa: N818 - reads as what happened
    """The worker process has ended, or could not start."""


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


class EngineWorker:
    """A process that `command` starts; one that died is started again.

    A request has an id and a queue of the frames that answer it, (FAILED, b"") if its process has ended. `mend` says
    how to mend what keeps the process from starting.
    """

    def __init__(self, name: str, command: Sequence[str], mend: str) -> None:
        self.name = name
        self._command = command
        self._mend = mend
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._next_id = 0
        self._answers: dict[int, asyncio.Queue[tuple[int, bytes]]] = {}

    @property
    def requests(self) -> int:
        """Number of requests in progress."""
        return len(self._answers)

    async def start(self) -> None:
        """Start the process. Raises UsageError if it cannot work on this machine."""
        try:
            await self.ready()
        except WorkerGone as gone:
            raise UsageError(f"{self.name} cannot be used: {gone}; {self._mend}.") from gone

    async def ready(self) -> None:
        """Wait until the process can be asked; start it if it does not run. Raises WorkerGone."""
        if self._starting is None or (self._starting.done() and self._process is None):
            self._launch()
        if self._starting is not None:
            await asyncio.shield(self._starting)

    def begin(self) -> int:
        """Begin a request; return its id."""
        self._next_id += 1
        self._answers[self._next_id] = asyncio.Queue()
        return self._next_id

    def send(self, kind: int, ident: int, payload: bytes = b"") -> None:
        """Queue a frame of a request; never blocks. The request fails if the process does not run."""
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(kinds.HEADER.pack(kind, ident, len(payload)) + payload)
        elif ident in self._answers:
            self._answers[ident].put_nowait((kinds.FAILED, b""))

    async def answer(self, ident: int) -> tuple[int, bytes]:
        """Return the next frame that answers a request."""
        return await self._answers[ident].get()

    def end(self, ident: int) -> bool:
        """End a request; return whether it was in progress."""
        return self._answers.pop(ident, None) is not None

    async def stop(self) -> None:
        """Stop the process: first by closing its input, then by killing it."""
        tasks = [task for task in (self._starting, self._reader) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        process, self._process = self._process, None
        if process is not None:
            await end_process(process, 1.0)

    def _launch(self) -> None:
        self._starting = asyncio.create_task(self._run())
        # A caller that waits gets the error; after a restart on its own, none waits.
        self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _run(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                kind, _, payload = await _read(process)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError) as error:
            await end_process(process, 1.0)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise WorkerGone("the process exited or was not ready in time") from error
        if kind != kinds.READY:
            await end_process(process, 1.0)
            raise WorkerGone(payload.decode(errors="replace"))
        self._process = process
        self._reader = asyncio.create_task(self._read_on(process))

    async def _read_on(self, process: asyncio.subprocess.Process) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, ident, payload = await _read(process)
                if ident in self._answers:
                    self._answers[ident].put_nowait((kind, payload))
        self._process = None
        for answers in self._answers.values():
            answers.put_nowait((kinds.FAILED, b""))
        self._launch()
        await end_process(process, 1.0)


async def _read(process: asyncio.subprocess.Process) -> tuple[int, int, bytes]:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    kind, ident, length = kinds.HEADER.unpack(await process.stdout.readexactly(kinds.HEADER.size))
    return kind, ident, await process.stdout.readexactly(length) if length else b""


class WorkerAsr(AsrEngine):
    """A recognizer in several processes; each utterance stays with one. When that dies, its transcript is empty."""

    def __init__(self, workers: Sequence[EngineWorker]) -> None:
        self._workers = workers

    async def start(self) -> None:
        """Start all processes; if one cannot, stop them all."""
        try:
            await asyncio.gather(*(worker.start() for worker in self._workers))
        except UsageError:
            await self.stop()
            raise

    def open(self, rate_hz: int) -> AsrStream:
        """Use the process with the fewest utterances in progress."""
        return _WorkerStream(min(self._workers, key=lambda worker: worker.requests), rate_hz)

    async def stop(self) -> None:
        """Stop all processes."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))


class _WorkerStream(AsrStream):
    def __init__(self, worker: EngineWorker, rate_hz: int) -> None:
        self._worker = worker
        self._ident = worker.begin()
        worker.send(kinds.OPEN, self._ident, struct.pack("<I", rate_hz))

    def feed(self, pcm: Pcm) -> None:
        self._worker.send(kinds.AUDIO, self._ident, pcm.tobytes())

    async def partial(self, silent_samples: int) -> str:
        return await self._ask(kinds.PARTIAL, silent_samples, kinds.PARTIAL)

    async def finish(self, silent_samples: int) -> str:
        text = await self._ask(kinds.FINISH, silent_samples, kinds.FINAL)
        self._worker.end(self._ident)
        return text

    def abandon(self) -> None:
        if self._worker.end(self._ident):
            self._worker.send(kinds.ABANDON, self._ident)

    async def _ask(self, kind: int, silent_samples: int, wanted: int) -> str:
        self._worker.send(kind, self._ident, struct.pack("<I", silent_samples))
        try:
            async with asyncio.timeout(_FINAL_TIMEOUT_S):
                while True:
                    kind, text = await self._worker.answer(self._ident)
                    if kind in (wanted, kinds.FAILED):
                        return text.decode()
        except TimeoutError:
            return ""


class WorkerTts(TtsEngine):
    """A voice in a process of its own, which sends a sentence piece by piece."""

    def __init__(self, worker: EngineWorker) -> None:
        self._worker = worker
        self.start = worker.start
        self.stop = worker.stop

    async def speak(self, sentence: str, rate_hz: int) -> AsyncGenerator[Pcm]:
        """Yield the pieces as they come."""
        worker = self._worker
        try:
            await worker.ready()
        except WorkerGone as gone:
            raise TtsFailed(f"{worker.name} did not start: {gone}") from gone
        ident = worker.begin()
        try:
            worker.send(kinds.SPEAK, ident, struct.pack("<I", rate_hz) + sentence.encode())
            while True:
                async with asyncio.timeout(_PIECE_TIMEOUT_S):
                    kind, piece = await worker.answer(ident)
                if kind == kinds.FAILED:
                    raise TtsFailed(f"{worker.name} exited or rejected the sentence")
                if kind == kinds.END:
                    return
                yield np.frombuffer(piece, np.int16)
        except TimeoutError as error:
            raise TtsFailed(f"{worker.name} stopped sending") from error
        finally:
            worker.end(ident)


class WorkerVad(ProbabilityVad):
    """Speech as a network in a process of its own detects it. If that dies, nothing more is heard in this stream."""

    def __init__(self, worker: EngineWorker, rate_hz: int) -> None:
        super().__init__(rate_hz)
        self._has_ended = False
        self._worker = worker
        self._ident = worker.begin()
        worker.send(kinds.OPEN, self._ident, struct.pack("<I", rate_hz))

    async def feed(self, pcm: Pcm) -> SpeechDetection:
        """Add the next samples, and wait until the network has heard them."""
        if self._has_ended:
            return self.state()
        self._worker.send(kinds.AUDIO, self._ident, pcm.tobytes())
        try:
            async with asyncio.timeout(_ACTIVITY_TIMEOUT_S):
                kind, probabilities = await self._worker.answer(self._ident)
        except TimeoutError:
            kind, probabilities = kinds.FAILED, b""
        if kind == kinds.ACTIVITY:
            self.add(np.frombuffer(probabilities, np.float32).tolist())
        else:
            self.end()
        return self.state()

    def end(self) -> None:
        """Let the process forget the stream."""
        self._has_ended = True
        if self._worker.end(self._ident):
            self._worker.send(kinds.ABANDON, self._ident)


class WorkerVads(AssistantEngine):
    """The network that detects speech, in a process of its own."""

    def __init__(self, worker: EngineWorker) -> None:
        self._worker = worker
        self.start = worker.start
        self.stop = worker.stop

    def open(self, rate_hz: int) -> WorkerVad:
        """Begin a stream; `rate_hz` is the rate of its samples."""
        return WorkerVad(self._worker, rate_hz)


class WorkerEmbedder(Embedder):
    """A model of embeddings in a process of its own."""

    def __init__(self, worker: EngineWorker) -> None:
        self._worker = worker
        self.start = worker.start
        self.stop = worker.stop

    async def embed(self, text: str) -> Vector | None:
        """Ask the process."""
        ident = self._worker.begin()
        self._worker.send(kinds.EMBED, ident, text.encode())
        try:
            async with asyncio.timeout(_VECTOR_TIMEOUT_S):
                kind, vector = await self._worker.answer(ident)
        except TimeoutError:
            return None
        finally:
            self._worker.end(ident)
        return np.frombuffer(vector, np.float32) if kind == kinds.VECTOR else None
