"""The worker process for Silero, a network that tells speech from other sound in windows of 32 ms.

    python -m loadtest.targets.assistant.real.silero_worker

Each frame of audio is answered by the probabilities of the windows that it completes.
"""

from typing import Any, Final

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingImports] - in the models' environment alone

from loadtest.audio.resample import StreamResampler
from loadtest.targets.assistant.real.worker import Pcm, package_folder, serve_activity, start

_RATE_HZ: Final = 16_000
_WINDOW_SAMPLES: Final = 512
_CONTEXT_SAMPLES: Final = 64  # before the window, which the network hears too


class _Detector:
    """One stream of audio, with the network's state."""

    def __init__(self, network: Any, rate_hz: int) -> None:
        self._network = network
        self._resampler = StreamResampler(rate_hz, _RATE_HZ)
        self._state: Any = np.zeros((2, 1, 128), np.float32)
        self._heard: Any = np.zeros(_CONTEXT_SAMPLES, np.float32)

    def feed(self, pcm: Pcm) -> list[float]:
        """Add the next samples; return the probabilities of the windows that they complete."""
        samples = np.asarray(self._resampler.feed(pcm), np.float32) / 32768
        self._heard = np.concatenate((self._heard, samples))
        probabilities: list[float] = []
        while len(self._heard) >= _CONTEXT_SAMPLES + _WINDOW_SAMPLES:
            window = self._heard[None, : _CONTEXT_SAMPLES + _WINDOW_SAMPLES]
            inputs = {"input": window, "state": self._state, "sr": np.array(_RATE_HZ, np.int64)}
            probability, self._state = self._network.run(None, inputs)
            probabilities.append(float(probability[0, 0]))
            self._heard = self._heard[_WINDOW_SAMPLES:]
        return probabilities


def _load() -> Any:
    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    file = package_folder("silero_vad") / "data" / "silero_vad.onnx"
    network: Any = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    _Detector(network, _RATE_HZ).feed(np.zeros(_WINDOW_SAMPLES, np.int16))
    return network


def main() -> None:
    """Serve until the parent closes the pipe."""
    out, network = start(_load)
    serve_activity(out, lambda rate_hz: _Detector(network, rate_hz).feed)


if __name__ == "__main__":
    main()
