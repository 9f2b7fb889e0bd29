"""Tests of the uncertainty of speech bounds, and that manifests state it for every clip."""

from pathlib import Path

import numpy as np
import pytest

from corpora.annotation.boundary_uncertainty import (
    LARGE_MS,
    REVIEWED_MS,
    SURE_END_S,
    SURE_MS,
    SURE_START_S,
    boundary_uncertainty_s,
    stated_ms,
)
from corpora.annotation.bounds import find_speech_bounds
from corpora.manifest.library import open_corpus
from corpora.manifest.manifest import read_manifest, write_manifest
from corpora.sources.authoring import Draft, write_corpus
from tests.unit.corpora.conftest import RATE_HZ, Workshop, burst


def test_a_larger_spread_of_readings_is_a_larger_uncertainty() -> None:
    for sure_s in (SURE_START_S, SURE_END_S):
        stated = [boundary_uncertainty_s(spread_s, 60.0, sure_s) for spread_s in (0.0, 0.016, 0.0165, 0.03, 0.2)]
        assert stated == sorted(stated)
        assert stated[0] == stated[1] == sure_s
        assert stated[-1] == pytest.approx(0.25)
        assert all(stated_ms(half_width) > SURE_MS for half_width in stated[2:])


def test_sure_bounds_are_not_listed_for_review() -> None:
    assert max(stated_ms(SURE_START_S), stated_ms(SURE_END_S)) <= SURE_MS < LARGE_MS
    assert REVIEWED_MS < SURE_MS


def test_speech_close_to_the_noise_floor_is_never_sure() -> None:
    assert stated_ms(boundary_uncertainty_s(0.0, 35.9, SURE_END_S)) > SURE_MS
    assert stated_ms(boundary_uncertainty_s(0.0, 36.0, SURE_END_S)) <= SURE_MS


def test_sharp_edges_are_sure_in_digital_silence_not_in_noise() -> None:
    bounds = find_speech_bounds(burst(), RATE_HZ)
    assert (bounds.start_uncertainty_s, bounds.end_uncertainty_s) == (SURE_START_S, SURE_END_S)
    hissing = burst() + 5e-3 * np.random.default_rng(3).standard_normal(len(burst()))
    bounds = find_speech_bounds(hissing, RATE_HZ)
    assert min(stated_ms(bounds.start_uncertainty_s), stated_ms(bounds.end_uncertainty_s)) > SURE_MS


@pytest.mark.parametrize("hiss", [0.0, 1e-3])
def test_the_manifest_states_the_detected_uncertainty(tmp_path: Path, hiss: float) -> None:
    samples = burst() + hiss * np.random.default_rng(3).standard_normal(len(burst()))
    pcm = np.rint(samples * 32_767).astype(np.int16)
    draft = Draft("one", "hello", "me", "en-US", "home", "CC0-1.0", "a test", pcm, RATE_HZ)
    write_corpus(tmp_path / "made", "made", "generated", [draft])
    (utterance,) = open_corpus(str(tmp_path / "made")).utterances
    bounds = find_speech_bounds(pcm / 32_768.0, RATE_HZ)
    assert utterance.speech_start_uncertainty_ms == stated_ms(bounds.start_uncertainty_s)
    assert utterance.speech_end_uncertainty_ms == stated_ms(bounds.end_uncertainty_s)


def test_unknown_uncertainty_survives_rewrite_of_manifest(workshop: Workshop) -> None:
    workshop.add("one", speech_start_uncertainty_ms=None)
    del workshop.rows[0]["speech_end_uncertainty_ms"]
    manifest = read_manifest(workshop.save())
    write_manifest(workshop.folder, manifest.name, manifest.kind, manifest.utterances, edges="recorded")
    (again,) = read_manifest(workshop.folder).utterances
    assert (again.speech_start_uncertainty_ms, again.speech_end_uncertainty_ms) == (None, None)
