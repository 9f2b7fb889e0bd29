"""The utterances that the review page lists, and saving their bounds in the manifest."""

import math
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from corpora.annotation.boundary_review import review_reasons
from corpora.annotation.boundary_uncertainty import REVIEWED_MS
from corpora.manifest.clips import read_clip
from corpora.manifest.errors import CorpusError
from corpora.manifest.locking import corpus_lock
from corpora.manifest.manifest import Edges, Manifest, Utterance, read_manifest, write_manifest


@dataclass(frozen=True, slots=True)
class Listed:
    """An utterance as the page lists it."""

    id: str
    text: str | None
    speaker: str
    sample_rate_hz: int
    samples: int
    start: int
    end: int
    confidence_db: float | None
    start_uncertainty_ms: float | None
    end_uncertainty_ms: float | None
    reviewed: bool
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Review:
    """A review of the bounds of one corpus. Every request reads the manifest again, so changes by others are kept."""

    folder: Path
    everything: bool = False  # also list utterances whose bounds are sure
    _listed: frozenset[str] = frozenset()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Determine which utterances are listed; they stay in the list after their bounds are saved.

        Raises ManifestError if the corpus cannot be used.
        """
        manifest = read_manifest(self.folder)
        self._listed = frozenset(
            utterance.id
            for utterance in manifest.utterances
            if self.everything or review_reasons(utterance, manifest.edges)
        )

    def listed(self) -> list[Listed]:
        """The utterances to review, the most uncertain first."""
        manifest = self._manifest()
        rows = [_listed(utterance, manifest.edges) for utterance in manifest.utterances if utterance.id in self._listed]
        return sorted(rows, key=lambda row: (-_widest_ms(row, manifest.edges), row.id))

    def pcm(self, name: str) -> bytes:
        """The samples of a clip as 16-bit little-endian PCM. Raises CorpusError."""
        samples = read_clip(self.folder, _find(self._manifest(), name))
        return np.clip(np.rint(samples * 32_768.0), -32_768, 32_767).astype("<i2").tobytes()

    def save(self, name: str, start: int, end: int) -> Listed:
        """Save the bounds of an utterance, both included, and mark it as reviewed.

        If a bound was moved, the confidence of the detected bounds is removed. The uncertainty of both becomes that of
        a review. Raises CorpusError if the bounds are invalid or contain only silence.
        """
        with self._lock, corpus_lock(self.folder):
            manifest = self._manifest()
            utterance = _find(manifest, name)
            if not 0 <= start < end < utterance.samples:
                raise CorpusError(
                    f"{name}: the bounds {start} and {end} must be within its {utterance.samples} samples, "
                    "the start before the end; move them."
                )
            moved = (start, end) != (utterance.speech_start_sample, utterance.speech_end_sample)
            reviewed = replace(
                utterance,
                speech_start_sample=start,
                speech_end_sample=end,
                bounds_confidence_db=None if moved else utterance.bounds_confidence_db,
                speech_start_uncertainty_ms=REVIEWED_MS,
                speech_end_uncertainty_ms=REVIEWED_MS,
                reviewed=True,
            )
            if not np.any(read_clip(self.folder, utterance)[start : end + 1]):
                raise CorpusError(f"{name}: samples {start} to {end} contain only silence; move the bounds.")
            rows = [reviewed if utterance.id == name else utterance for utterance in manifest.utterances]
            try:
                write_manifest(self.folder, manifest.name, manifest.kind, rows, edges=manifest.edges)
            except OSError as error:
                raise CorpusError(
                    f"{self.folder}: the manifest cannot be written ({error.strerror}); check space and permissions."
                ) from error
        return _listed(reviewed, manifest.edges)

    def _manifest(self) -> Manifest:
        return read_manifest(self.folder)


def _widest_ms(row: Listed, edges: Edges) -> float:
    """The larger uncertainty of the bounds that matter; infinite if it is unknown."""
    stated = (row.start_uncertainty_ms, row.end_uncertainty_ms)
    considered = stated if edges == "recorded" else stated[:1]
    return max(math.inf if half_width_ms is None else half_width_ms for half_width_ms in considered)


def _find(manifest: Manifest, name: str) -> Utterance:
    utterance = next((utterance for utterance in manifest.utterances if utterance.id == name), None)
    if utterance is None:
        raise CorpusError(f"{manifest.name} has no utterance {name[:100]!r}; reload the page.")
    return utterance


def _listed(utterance: Utterance, edges: Edges) -> Listed:
    return Listed(
        id=utterance.id,
        text=utterance.text,
        speaker=utterance.speaker,
        sample_rate_hz=utterance.sample_rate_hz,
        samples=utterance.samples,
        start=utterance.speech_start_sample,
        end=utterance.speech_end_sample,
        confidence_db=utterance.bounds_confidence_db,
        start_uncertainty_ms=utterance.speech_start_uncertainty_ms,
        end_uncertainty_ms=utterance.speech_end_uncertainty_ms,
        reviewed=utterance.reviewed,
        reasons=review_reasons(utterance, edges),
    )
