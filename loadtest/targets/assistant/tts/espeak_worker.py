"""The worker process for espeak-ng, which is separate because the library has global state and is GPL.

Reads sentences and writes pieces of 60 ms at the requested rate, then an end mark. Started by `worker_tts.py`.
"""

import ctypes
import struct
import sys
from typing import Any, BinaryIO, Final

import espeakng_loader
import numpy as np

from loadtest.audio.pcm import Pcm16
from loadtest.audio.resample import StreamResampler
from loadtest.targets.assistant.tts.frames import END, FAILED, PIECE, READY, SPEAK
from loadtest.targets.assistant.worker_pipe import read_frame, take_over_stdout, write_frame

_RETRIEVAL: Final = 1  # AUDIO_OUTPUT_RETRIEVAL: samples come by callback
_PIECE_MS: Final = 60
_UTF8: Final = 1
_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class _Voice:
    def __init__(self, voice: str, out: BinaryIO) -> None:
        self._library: Any = ctypes.CDLL(espeakng_loader.get_library_path())
        data = espeakng_loader.get_data_path().encode()
        self._rate_hz = self._library.espeak_Initialize(_RETRIEVAL, _PIECE_MS, data, 0)
        if self._rate_hz <= 0:
            raise RuntimeError("espeak-ng cannot be initialized")
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise RuntimeError(f"espeak-ng has no voice '{voice}'")
        self._out = out
        self._ident = 0
        self._resampler: StreamResampler | None = None
        self._callback = _CALLBACK(self._piece)
        self._library.espeak_SetSynthCallback(self._callback)

    def speak(self, ident: int, sentence: str, rate_hz: int) -> None:
        self._ident = ident
        self._resampler = StreamResampler(self._rate_hz, rate_hz)
        text = sentence.encode()
        status = self._library.espeak_Synth(text, len(text) + 1, 0, 1, 0, _UTF8, None, None)
        self._library.espeak_Synchronize()
        self._write(self._resampler.flush())
        write_frame(self._out, END if status == 0 else FAILED, ident)

    def _piece(self, wav: Any, samples: int, events: Any) -> int:
        del events
        if wav and samples > 0:
            pcm = np.ctypeslib.as_array(wav, shape=(samples,)).copy()
            self._write(pcm if self._resampler is None else self._resampler.feed(pcm))
        return 0

    def _write(self, pcm: Pcm16) -> None:
        if len(pcm):
            write_frame(self._out, PIECE, self._ident, pcm.tobytes())


def main() -> None:
    """Serve until the parent closes the pipe."""
    out = take_over_stdout()
    try:
        voice = _Voice(sys.argv[1], out)
    except (RuntimeError, OSError) as error:
        write_frame(out, FAILED, 0, str(error).encode())
        return
    write_frame(out, READY, 0)
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        kind, ident, payload = frame
        if kind == SPEAK:
            (rate_hz,) = struct.unpack_from("<I", payload)
            voice.speak(ident, payload[4:].decode(), rate_hz)


if __name__ == "__main__":
    main()
