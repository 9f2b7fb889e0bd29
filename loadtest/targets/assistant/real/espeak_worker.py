"""The worker process for espeak-ng, which is separate because the library has global state and is GPL.

python -m loadtest.targets.assistant.real.espeak_worker VOICE
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any, Final

import espeakng_loader
import numpy as np

from loadtest.audio.resample import StreamResampler
from loadtest.targets.assistant.real.worker import PIECE_MS, Pcm, serve_speech, start

_RETRIEVAL: Final = 1  # AUDIO_OUTPUT_RETRIEVAL: samples come by callback
_UTF8: Final = 1
_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class _Voice:
    def __init__(self, voice: str) -> None:
        self._library: Any = ctypes.CDLL(espeakng_loader.get_library_path())
        data = espeakng_loader.get_data_path().encode()
        self._rate_hz = self._library.espeak_Initialize(_RETRIEVAL, PIECE_MS, data, 0)
        if self._rate_hz <= 0:
            raise RuntimeError("espeak-ng cannot be initialized")
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise RuntimeError(f"espeak-ng has no voice '{voice}'")
        self._take: Callable[[Pcm], None] | None = None
        self._callback = _CALLBACK(self._piece)
        self._library.espeak_SetSynthCallback(self._callback)

    def speak(self, sentence: str, rate_hz: int, write: Callable[[Pcm], None]) -> None:
        resampler = StreamResampler(self._rate_hz, rate_hz)
        self._take = lambda pcm: write(resampler.feed(pcm))
        text = sentence.encode()
        status = self._library.espeak_Synth(text, len(text) + 1, 0, 1, 0, _UTF8, None, None)
        self._library.espeak_Synchronize()
        write(resampler.flush())
        if status != 0:
            raise RuntimeError(f"espeak-ng rejected the sentence ({status})")

    def _piece(self, wav: Any, samples: int, events: Any) -> int:
        del events
        if wav and samples > 0 and self._take is not None:
            self._take(np.ctypeslib.as_array(wav, shape=(samples,)).copy())
        return 0


def main() -> None:
    """Serve until the parent closes the pipe."""
    out, voice = start(lambda: _Voice(sys.argv[1]))
    serve_speech(out, voice.speak)


if __name__ == "__main__":
    main()
