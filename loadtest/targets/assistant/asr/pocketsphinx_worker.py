"""The worker process for pocketsphinx, which holds the interpreter lock while it decodes.

A decoder serves one utterance at a time and is reused, because loading the model takes a second. Started by
`worker_asr.py` at low priority: recognition may be late, sending audio may not.
"""

import os
import struct
import sys
from typing import Any, Final

import numpy as np
from pocketsphinx import Decoder

from loadtest.audio.pcm import Pcm16
from loadtest.audio.resample import StreamResampler
from loadtest.targets.assistant.asr.frames import ABANDON, AUDIO, FAILED, FINAL, FINISH, OPEN, PARTIAL, READY
from loadtest.targets.assistant.worker_pipe import read_frame, take_over_stdout, write_frame

_RATE_HZ: Final = 16_000


class _Utterance:
    def __init__(self, decoder: Any, rate_hz: int) -> None:
        self.decoder = decoder
        self._resampler = StreamResampler(rate_hz, _RATE_HZ)
        decoder.start_utt()

    def feed(self, pcm: Pcm16) -> None:
        resampled = self._resampler.feed(pcm)
        if len(resampled):
            self.decoder.process_raw(resampled.tobytes(), False, False)

    def words(self) -> str:
        hypothesis = self.decoder.hyp()
        return hypothesis.hypstr.strip() if hypothesis is not None and hypothesis.hypstr else ""

    def finish(self) -> str:
        rest = self._resampler.flush()
        if len(rest):
            self.decoder.process_raw(rest.tobytes(), False, False)
        self.decoder.end_utt()
        return self.words()


def _decoder(model: str, dictionary: str) -> Any:  # the package has no types
    options: dict[str, object] = {"samprate": float(_RATE_HZ), "loglevel": "FATAL"}
    if model:
        options["lm"] = model
    if dictionary:
        options["dict"] = dictionary
    return Decoder(**options)


def main() -> None:
    """Serve until the parent closes the pipe. Arguments: language model and dictionary ("" for the bundled ones)."""
    out = take_over_stdout()
    os.nice(10)
    model, dictionary = sys.argv[1], sys.argv[2]
    try:
        idle = [_decoder(model, dictionary)]
    except (RuntimeError, ValueError, OSError) as error:
        write_frame(out, FAILED, 0, f"the model cannot be loaded ({error})".encode())
        return
    write_frame(out, READY, 0)
    under_way: dict[int, _Utterance] = {}
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        kind, ident, payload = frame
        if kind == OPEN:
            decoder = idle.pop() if idle else _decoder(model, dictionary)
            under_way[ident] = _Utterance(decoder, struct.unpack("<I", payload)[0])
            continue
        utterance = under_way.get(ident)
        if utterance is None:
            continue
        if kind == AUDIO:
            utterance.feed(np.frombuffer(payload, np.int16))
        elif kind == PARTIAL:
            write_frame(out, PARTIAL, ident, utterance.words().encode())
        elif kind in (FINISH, ABANDON):
            words = utterance.finish()
            del under_way[ident]
            idle.append(utterance.decoder)
            if kind == FINISH:
                write_frame(out, FINAL, ident, words.encode())


if __name__ == "__main__":
    main()
