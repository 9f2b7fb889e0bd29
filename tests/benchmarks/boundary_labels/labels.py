"""The labels that were read from the pictures: one per clip, the median of its labelers."""

import csv
import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import soundfile

from corpora.manifest.clips import Samples
from corpora.manifest.library import open_corpus

LABELS: Final = Path(__file__).parent / "data"
_BUNDLED: Final = "gen."


def labels_of(draw: str) -> Path:
    """The folder with the labels and the list of clips of a draw."""
    return LABELS if draw == "first" else LABELS / draw


@dataclass(frozen=True, slots=True)
class Mark:
    """The label of one bound of the speech: its time from the first sample and the labelers' uncertainty, ±, in ms.

    `apart_ms` is the largest difference between its labelers; None if there was only one.
    """

    at_ms: float
    sure_ms: float
    apart_ms: float | None


@dataclass(frozen=True, slots=True)
class Labeled:
    """A clip and its two marks."""

    id: str
    source: str
    rate_hz: int
    final_class: str
    split: str
    sha256: str
    start: Mark
    end: Mark


def read_labels(folder: Path = LABELS) -> list[Labeled]:
    """All labeled clips, in the order of `clips.csv`."""
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    for file in sorted(folder.glob("labels-*.csv")):
        with file.open(encoding="utf-8", newline="") as opened:
            for row in csv.DictReader(opened):
                rows[row["id"]].append(row)
    with (folder / "clips.csv").open(encoding="utf-8", newline="") as opened:
        return [
            Labeled(
                clip["id"], clip["source"], int(clip["rate_hz"]), clip["final_class"], clip["split"], clip["sha256"],
                _mark(rows[clip["id"]], "start"), _mark(rows[clip["id"]], "end"),
            )
            for clip in csv.DictReader(opened)
            if rows[clip["id"]]
        ]  # fmt: skip


def _mark(rows: list[dict[str, str]], side: str) -> Mark:
    at_ms = [float(row[f"{side}_ms"]) for row in rows]
    return Mark(
        median(at_ms),
        median(float(row[f"{side}_sure_ms"]) for row in rows),
        max(at_ms) - min(at_ms) if len(at_ms) > 1 else None,
    )


def with_audio(labeled: list[Labeled], folder: Path | None) -> Iterator[tuple[Labeled, Samples]]:
    """Yield the clips with their samples at full scale ±1.0, from `folder/audio/ID.wav`.

    Without a folder, only the clips of the bundled corpus. Raises ValueError if samples differ from those labeled.
    """
    corpus = open_corpus("voiceprobe-en")
    bundled = {f"{_BUNDLED}{utterance.id}": utterance for utterance in corpus.utterances}
    for clip in labeled:
        if folder is not None:
            samples, _ = soundfile.read(folder / "audio" / f"{clip.id}.wav", dtype="float64")
        elif clip.id in bundled:
            samples = corpus.read(bundled[clip.id])
        else:
            continue
        if hashlib.sha256(np.rint(samples * 32_768.0).astype("<i2").tobytes()).hexdigest() != clip.sha256:
            raise ValueError(f"{clip.id}: its samples are not those that were labeled; create the audio again (choose)")
        yield clip, np.asarray(samples, dtype=np.float64)
