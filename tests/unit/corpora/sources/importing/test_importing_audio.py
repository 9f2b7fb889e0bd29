"""Tests that audio of every format is imported with its samples, bounds and level, and its processing is stated."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from corpora.annotation.boundary_review import review_reasons
from corpora.annotation.bounds import find_speech_bounds
from corpora.annotation.levels import active_speech_level_dbov
from corpora.sources.importing.conditioning import loudness_lufs, read_recording
from corpora.sources.importing.decoding import parse_raw_format
from corpora.sources.importing.items import Item, Settings
from tests.unit.corpora.sources.importing.sources import RATE_HZ, import_source, opened, put, speech, texts

_RATES = [(None, 192_000, 48_000), (16_000, 44_100, 16_000), (None, 44_100, 44_100)]
SETTINGS = Settings(license="CC0-1.0", consent="asked", label="test", loudness="none", level_db=0.0)


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "ogg", "opus", "aiff", "m4a", "g722", "raw"])
def test_a_recording_of_each_format_keeps_its_text_and_bounds(tmp_path: Path, kind: str) -> None:
    samples = speech()
    put(tmp_path / "in" / f"clip.{kind}", samples, text="a text")
    outcome = import_source(tmp_path / "in", tmp_path / "out", raw=parse_raw_format("s16le:16000:1"))
    (utterance,) = opened(outcome).utterances
    assert (utterance.text, utterance.license, utterance.consent) == ("a text", "CC0-1.0", "asked by a test")
    truth = find_speech_bounds(samples, RATE_HZ)
    # An encoder may add a delay before the audio (AAC: twice 1024 samples); the length of the speech is unchanged.
    delay = utterance.speech_start_sample - truth.start_sample
    assert -160 <= delay <= (2_400 if kind in ("m4a", "mp3") else 160)
    assert utterance.speech_end_sample - truth.end_sample - delay == pytest.approx(0, abs=480)


def test_an_unprocessed_lossless_recording_keeps_every_sample(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.flac", speech())
    outcome = import_source(tmp_path / "in", tmp_path / "out", loudness="none", level_db=0.0)
    corpus = opened(outcome)
    assert np.array_equal(corpus.read(corpus.utterances[0]), speech())
    assert corpus.utterances[0].processing is None


@pytest.mark.parametrize(
    ("requested_hz", "from_hz", "to_hz"), [(None, 192_000, 48_000), (16_000, 44_100, 16_000), (None, 44_100, 44_100)]
)
def test_resampling_in_blocks_equals_resampling_at_once(
    tmp_path: Path, requested_hz: int | None, from_hz: int, to_hz: int
) -> None:
    wide = np.asarray(soxr.resample(speech(), RATE_HZ, from_hz, quality="VHQ")) * 0.5
    file = put(tmp_path / "a.wav", wide, from_hz)
    original, _ = soundfile.read(file)
    settings = Settings("", "", "x", rate_hz=requested_hz, loudness="none")
    samples, rate_hz, steps = read_recording(Item("a", file, "a.wav"), settings)
    assert rate_hz == to_hz
    assert steps == ([f"resampled from {from_hz} Hz"] if from_hz != to_hz else [])
    whole = np.asarray(soxr.resample(original, from_hz, to_hz, quality="VHQ")) if from_hz != to_hz else original
    assert len(samples) == len(whole)
    assert np.max(np.abs(samples - whole)) < 1e-4


def test_the_active_speech_level_is_set(tmp_path: Path) -> None:
    file = put(tmp_path / "a.wav", speech() * 0.1)
    settings = Settings("", "", "x", loudness="asl", level_db=-30.0)
    samples, rate_hz, steps = read_recording(Item("a", file, "a.wav"), settings)
    bounds = find_speech_bounds(samples, rate_hz)
    assert active_speech_level_dbov(samples, rate_hz, bounds.start_sample, bounds.end_sample) == pytest.approx(
        -30, abs=0.1
    )
    assert steps[0].endswith("dB to -30.0 dBov ASL")


def test_bs1770_loudness_follows_the_recommendation_and_is_set(tmp_path: Path) -> None:
    # BS.1770-4: a 997 Hz sine at 0 dBFS on one channel has -3.01 LKFS, so at -20 dBFS it has -23.01.
    sine = 0.1 * np.sin(2 * np.pi * 997 * np.arange(3 * 48_000) / 48_000)
    assert loudness_lufs(sine, 48_000) == pytest.approx(-23.01, abs=0.05)
    file = put(tmp_path / "a.wav", speech() * 0.3)
    samples, rate_hz, steps = read_recording(
        Item("a", file, "a.wav"), Settings("", "", "x", loudness="bs1770", level_db=-23.0)
    )
    assert loudness_lufs(samples, rate_hz) == pytest.approx(-23.0, abs=0.05)
    assert steps[0].endswith("dB to -23.0 LUFS")


def test_a_clip_shorter_than_a_bs1770_block_has_a_loudness() -> None:
    sine = 0.1 * np.sin(2 * np.pi * 997 * np.arange(48_000) / 48_000)
    assert loudness_lufs(sine[:4_800], 48_000) == pytest.approx(-23.01, abs=0.5)


def test_a_clip_is_not_raised_into_clipping(tmp_path: Path) -> None:
    clicked = speech() * 0.05
    clicked[5_000] = 0.9
    file = put(tmp_path / "a.wav", clicked)
    samples, _, steps = read_recording(Item("a", file, "a.wav"), Settings("", "", "x", loudness="asl", level_db=-16.0))
    assert np.max(np.abs(samples)) == pytest.approx(10 ** (-1 / 20), rel=1e-3)
    assert "short of it for its peak" in steps[0]


@pytest.mark.parametrize(("channel", "index"), [(0, 0), (1, 1)])
def test_a_channel_can_be_chosen(tmp_path: Path, channel: int, index: int) -> None:
    both = np.stack((speech(0)[:12_000], speech(1)[:12_000]), axis=1)
    file = put(tmp_path / "a.wav", both)
    samples, _, steps = read_recording(Item("a", file, "a.wav", channel=channel), SETTINGS)
    assert np.max(np.abs(samples - both[:, index])) < 1e-4
    assert steps == [f"channel {channel} of 2"]


def test_equal_channels_require_no_choice_and_can_be_mixed(tmp_path: Path) -> None:
    same = np.repeat(speech()[:, None], 2, axis=1)
    file = put(tmp_path / "a.wav", same)
    for channel in (None, "mix"):
        settings = Settings("", "", "x", loudness="none", channel=channel)  # pyright: ignore[reportArgumentType]
        samples, _, _ = read_recording(Item("a", file, "a.wav"), settings)
        assert np.max(np.abs(samples - speech())) < 1e-4


def test_doubtful_bounds_are_found_by_uncertainty_and_by_the_edges(tmp_path: Path) -> None:
    clean = speech(3)  # a clip whose bounds stay sure after a change of level
    noise = np.random.default_rng(1).standard_normal(len(clean)) * 0.02
    put(tmp_path / "in" / "noisy.wav", clean + noise)
    put(tmp_path / "in" / "clean.wav", clean)
    bounds = find_speech_bounds(clean, RATE_HZ)
    put(tmp_path / "in" / "tight.wav", clean[bounds.start_sample + 800 : bounds.end_sample - 800])
    outcome = import_source(tmp_path / "in", tmp_path / "out")
    found = {utterance.id: " ".join(review_reasons(utterance, "recorded")) for utterance in outcome.imported}
    assert found["clean"] == ""
    assert "known only to" in found["noisy"]
    assert "begins where the clip does" in found["tight"]
    assert "ends where the clip does" in found["tight"]
    exact = {utterance.id: " ".join(review_reasons(utterance, "exact")) for utterance in outcome.imported}
    assert "begins where the clip does" in exact["tight"]
    assert not any(" ends " in reasons for reasons in exact.values()), "with exact edges, no end is in doubt"


def test_a_recording_without_a_text_is_imported(tmp_path: Path) -> None:
    put(tmp_path / "in" / "sub" / "yes.wav", speech(0), text="yes please")
    put(tmp_path / "in" / "sub" / "no.wav", speech(1))
    assert texts(import_source(tmp_path / "in", tmp_path / "out")) == {"yes": "yes please", "no": None}
