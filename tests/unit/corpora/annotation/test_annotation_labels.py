"""Tests of the detector of speech bounds against labels that were read from spectrogram and waveform, clip by clip.

Recorded edges rely on the detector and on the uncertainty that it states. `data/labels.csv` has, for 26 of the bundled
clips, the SHA-256 of the 16-bit samples and both bounds in ms from the start of the file, with the labelers' own
uncertainty. The labelers saw no result of a detector.
"""

import csv
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from corpora.annotation.boundary_uncertainty import SURE_MS
from corpora.annotation.bounds import find_speech_bounds
from corpora.manifest.library import BUNDLED, open_corpus


@dataclass(frozen=True)
class Compared:
    """One bound of one clip, in ms: the detector's error, its stated uncertainty, and the label's."""

    clip: str
    error: float
    stated: float
    label: float


@pytest.fixture(scope="module")
def compared() -> list[Compared]:
    return list(_compare())


def _compare() -> Iterator[Compared]:
    corpus = open_corpus(BUNDLED, check_clips=False)
    by_id = {utterance.id: utterance for utterance in corpus.utterances}
    with (Path(__file__).parent / "data" / "labels.csv").open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    for row in rows:
        utterance = by_id[row["id"]]
        samples = corpus.read(utterance)
        pcm = np.rint(samples * 32_768.0).astype("<i2")
        assert hashlib.sha256(pcm.tobytes()).hexdigest() == row["sha256"], (
            f"{row['id']} is not the clip that was labeled"
        )
        bounds = find_speech_bounds(samples, utterance.sample_rate_hz)
        ms = 1000.0 / utterance.sample_rate_hz
        for side, at, half_width_s in (
            ("start", bounds.start_sample * ms, bounds.start_uncertainty_s),
            ("end", (bounds.end_sample + 1) * ms, bounds.end_uncertainty_s),
        ):
            error = at - float(row[f"{side}_ms"])
            yield Compared(f"{row['id']} {side}", error, half_width_s * 1000.0, float(row[f"{side}_sure_ms"]))


@pytest.mark.slow
def test_sure_bounds_are_close_to_their_labels(compared: list[Compared]) -> None:
    sure = [bound for bound in compared if bound.stated <= SURE_MS]
    assert len(compared) == 52
    assert len(sure) >= 20
    assert [bound for bound in sure if abs(bound.error) > max(SURE_MS, bound.label)] == []


@pytest.mark.slow
def test_errors_are_within_the_stated_uncertainty(compared: list[Compared]) -> None:
    """The difference may be as large as the combined uncertainty of bound and label."""
    within = sum(abs(bound.error) <= np.hypot(bound.stated, bound.label) for bound in compared)
    assert within >= 0.95 * len(compared)
