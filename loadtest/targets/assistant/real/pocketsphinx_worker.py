"""The worker process for pocketsphinx, which holds the interpreter lock while it decodes.

    python -m loadtest.targets.assistant.real.pocketsphinx_worker LANGUAGE_MODEL DICTIONARY   ("" for the bundled ones)

A decoder serves one utterance at a time and is reused, because loading the model takes a second. It runs at low
priority: recognition may be late, sending audio may not.
"""

import os
import sys
from typing import Any, Final

from pocketsphinx import Decoder

from loadtest.audio.pcm import Pcm16
from loadtest.audio.resample import StreamResampler
from loadtest.targets.assistant.real.worker import frames, serve_recognition, start

_RATE_HZ: Final = 16_000


class _StreamedUtterance:
    def __init__(self, idle: list[Any], rate_hz: int) -> None:
        self._idle = idle
        self._decoder = idle.pop() if idle else _decoder()
        self._resampler = StreamResampler(rate_hz, _RATE_HZ)
        self._decoder.start_utt()

    def feed(self, pcm: Pcm16) -> None:
        self._decode(self._resampler.feed(pcm))

    def partial(self, silent_samples: int) -> str:
        del silent_samples
        hypothesis = self._decoder.hyp()
        return hypothesis.hypstr.strip() if hypothesis is not None and hypothesis.hypstr else ""

    def finish(self, silent_samples: int) -> str:
        del silent_samples
        self._decode(self._resampler.flush())
        self._decoder.end_utt()
        text = self.partial(0)
        self._idle.append(self._decoder)
        return text

    def abandon(self) -> None:
        self.finish(0)

    def _decode(self, pcm: Pcm16) -> None:
        if len(pcm):
            self._decoder.process_raw(pcm.tobytes(), False, False)


def _decoder() -> Any:  # the package has no types
    options: dict[str, object] = {"samprate": float(_RATE_HZ), "loglevel": "FATAL"}
    options |= {name: file for name, file in zip(("lm", "dict"), sys.argv[1:], strict=True) if file}
    return Decoder(**options)


def main() -> None:
    """Serve until the parent closes the pipe."""
    os.nice(10)
    out, idle = start(lambda: [_decoder()])
    serve_recognition(out, frames(), lambda rate_hz: _StreamedUtterance(idle, rate_hz))


if __name__ == "__main__":
    main()
