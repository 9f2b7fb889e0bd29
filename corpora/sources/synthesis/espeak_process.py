"""The process in which espeak-ng speaks for a corpus. Its library keeps global state and is GPL: it stays on its own.

Started as `python -m corpora.sources.synthesis.espeak_process VOICE`: each line of standard input is a text as a
JSON string; the answer is a line with the rate in Hz and the number of samples, and then the samples (int16), or one
with a sentence.
"""

import ctypes
import sys
from typing import Any, Final

import espeakng_loader
import msgspec
import numpy as np

_RETRIEVAL: Final = 1  # AUDIO_OUTPUT_RETRIEVAL: samples come by callback
_UTF8: Final = 1
_PIECE_MS: Final = 200
_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def main() -> None:
    """Speak until the input ends."""
    library: Any = ctypes.CDLL(espeakng_loader.get_library_path())
    rate_hz = library.espeak_Initialize(_RETRIEVAL, _PIECE_MS, espeakng_loader.get_data_path().encode(), 0)
    failed = None
    if rate_hz <= 0:
        failed = "espeak-ng cannot be initialized"
    elif library.espeak_SetVoiceByName(sys.argv[1].encode()) != 0:
        failed = f"espeak-ng has no voice {sys.argv[1]!r}"
    pieces: list[bytes] = []

    def piece(wav: Any, samples: int, events: Any) -> int:
        del events
        if wav and samples > 0:
            pieces.append(np.ctypeslib.as_array(wav, shape=(samples,)).tobytes())
        return 0

    callback = _CALLBACK(piece)
    if failed is None:
        library.espeak_SetSynthCallback(callback)
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        text = msgspec.json.decode(line, type=str).encode()
        pieces.clear()
        fault = failed
        if fault is None:
            status = library.espeak_Synth(text, len(text) + 1, 0, 1, 0, _UTF8, None, None)
            library.espeak_Synchronize()
            fault = None if status == 0 else f"espeak-ng ended with status {status}"
        pcm = b"".join(pieces)
        out.write(msgspec.json.encode({"rate_hz": rate_hz, "bytes": len(pcm), "fault": fault}) + b"\n" + pcm)
        out.flush()


if __name__ == "__main__":
    main()
