"""A small corpus on disk that each test may damage in its own way."""

import hashlib
import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from corpora.cli import main

RATE_HZ = 16_000


def burst(seconds: float = 1.0, pad: float = 0.2, seed: int = 1, amplitude: float = 0.1) -> NDArray[np.float64]:
    """Noise between digital silence: its bounds are as sharp as possible."""
    sound = np.random.default_rng(seed).standard_normal(round(seconds * RATE_HZ)) * amplitude
    silence = np.zeros(round(pad * RATE_HZ))
    return np.concatenate((silence, np.clip(sound, -0.99, 0.99), silence))


def encoded(samples: NDArray[Any], rate_hz: int = RATE_HZ, form: str = "FLAC", subtype: str = "PCM_16") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format=form, subtype=subtype)
    return file.getvalue()


def row_for(name: str, content: bytes, count: int, /, pad: float = 0.2, **changes: Any) -> dict[str, Any]:
    edge = round(pad * RATE_HZ)
    row: dict[str, Any] = {
        "id": name,
        "path": f"clips/{name}.flac",
        "text": f"this is {name}",
        "speaker": "somebody",
        "language": "en-US",
        "domain": "home",
        "license": "CC0-1.0",
        "source": "made by a test",
        "sha256": hashlib.sha256(content).hexdigest(),
        "sample_rate_hz": RATE_HZ,
        "samples": count,
        "speech_start_sample": edge,
        "speech_end_sample": count - edge - 1,
        "speech_start_uncertainty_ms": 2.5,
        "speech_end_uncertainty_ms": 5,
    }
    return row | changes


@dataclass
class Workshop:
    """A corpus folder that a test builds."""

    folder: Path
    rows: list[Any] = field(default_factory=list)
    header: Any = field(default_factory=lambda: {"corpus": "made", "kind": "generated", "format": 2})

    def add(self, name: str, seconds: float = 1.0, seed: int = 1, **changes: Any) -> Path:
        samples = burst(seconds, seed=seed)
        content = encoded(samples)
        file = self.folder / "clips" / f"{name}.flac"
        file.write_bytes(content)
        self.rows.append(row_for(name, content, len(samples), **changes))
        return file

    def replace(self, name: str, content: bytes) -> None:
        """Replace the contents of a clip and update its hash in the manifest."""
        row = next(row for row in self.rows if row["id"] == name)
        (self.folder / row["path"]).write_bytes(content)
        row["sha256"] = hashlib.sha256(content).hexdigest()

    def with_edges(self, edges: str) -> "Workshop":
        """State the edges in the header of the manifest."""
        self.header["edges"] = edges
        return self

    def save(self) -> Path:
        lines = [json.dumps(self.header), *(json.dumps(row) for row in self.rows)]
        (self.folder / "manifest.jsonl").write_text("\n".join(lines) + "\n")
        return self.folder


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    (tmp_path / "made" / "clips").mkdir(parents=True)
    return Workshop(tmp_path / "made")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An empty folder of recordings to import."""
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for installed corpora."""
    monkeypatch.setenv("VOICEPROBE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@dataclass(frozen=True)
class Ran:
    """The exit and the output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run `voiceprobe corpus` in this process."""

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["voiceprobe corpus", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Ran(int(ended.value.code or 0), *capsys.readouterr())

    return run
