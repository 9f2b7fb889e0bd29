"""A child process that synthesizes texts with espeak-ng, whose library has global state and is licensed under the GPL.

Started as `python -m corpora.sources.synthesis.espeak_process VOICE`. Each line of standard input is a text as a JSON
string. The response is a line with a JSON object of the rate in Hz, the number of bytes and the fault, if any, followed
by the samples (int16).
"""

import ctypes
import sys
from typing import Any, Final

import espeakng_loader
import msgspec
import numpy as np

_RETRIEVAL: Final = 1  # AUDIO_OUTPUT_RETRIEVAL: samples come by callback
_UTF8: Final = 1
_CHUNK_MS: Final = 200
_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def main() -> None:
    """Synthesize each line until the end of the input."""
    library: Any = ctypes.CDLL(espeakng_loader.get_library_path())
    rate_hz = library.espeak_Initialize(_RETRIEVAL, _CHUNK_MS, espeakng_loader.get_data_path().encode(), 0)
    startup_fault = None
    if rate_hz <= 0:
        startup_fault = "espeak-ng cannot be initialized"
    elif library.espeak_SetVoiceByName(sys.argv[1].encode()) != 0:
        startup_fault = f"espeak-ng has no voice {sys.argv[1]!r}"
    chunks: list[bytes] = []

    def add_chunk(wav: Any, samples: int, events: Any) -> int:
        del events
        if wav and samples > 0:
            chunks.append(np.ctypeslib.as_array(wav, shape=(samples,)).tobytes())
        return 0

    callback = _CALLBACK(add_chunk)
    if startup_fault is None:
        library.espeak_SetSynthCallback(callback)
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        text = msgspec.json.decode(line, type=str).encode()
        chunks.clear()
        fault = startup_fault
        if fault is None:
            status = library.espeak_Synth(text, len(text) + 1, 0, 1, 0, _UTF8, None, None)
            library.espeak_Synchronize()
            fault = None if status == 0 else f"espeak-ng startup_fault with status {status}"
        pcm = b"".join(chunks)
        out.write(msgspec.json.encode({"rate_hz": rate_hz, "bytes": len(pcm), "fault": fault}) + b"\n" + pcm)
        out.flush()


if __name__ == "__main__":
    main()
