"""The closed-set recognizer: it identifies known clips in noise, and rejects unknown speech."""

import asyncio

import numpy as np
import pytest

from corpora.manifest.library import BUNDLED, open_corpus
from corpora.rendering.render import Profile, render
from loadtest.errors import UsageError
from loadtest.targets.assistant.scripted import (
    ClipIndex,
    KnownClip,
    ScriptedAsr,
    known_clips,
    recognize,
    recognize_prefix,
)


@pytest.fixture(scope="module")
def clips() -> list[KnownClip]:
    return known_clips(BUNDLED)


def line(clip: KnownClip, snr_db: float | None, seed: int) -> np.ndarray:
    padded = np.concatenate((np.zeros(4800), clip.pcm, np.zeros(4800)))
    if snr_db is not None:
        level = np.sqrt(np.mean(clip.speech.astype(np.float64) ** 2)) * 10 ** (-snr_db / 20)
        padded = padded + np.random.default_rng(seed).standard_normal(len(padded)) * level
    return np.clip(padded, -32768, 32767).astype(np.int16)


@pytest.mark.parametrize("snr_db", [None, 10.0])
def test_known_clips_are_recognized(clips: list[KnownClip], snr_db: float | None) -> None:
    index = ClipIndex(clips)
    for seed, clip in enumerate(clips[::6]):
        recognized = recognize(index, line(clip, snr_db, seed), clip.rate_hz)
        assert recognized == clip.text


def test_unknown_speech_is_not_recognized(clips: list[KnownClip]) -> None:
    index = ClipIndex(clips[::2])
    known = {clip.text for clip in clips[::2]}
    strangers = [clip for clip in clips[1::2] if clip.text not in known][:12]
    recognized = [recognize(index, line(clip, None, 0), clip.rate_hz) for clip in strangers]
    assert recognized == [""] * len(strangers)


def test_partials_are_the_beginning_of_the_text(clips: list[KnownClip]) -> None:
    index = ClipIndex(clips)
    clip = max(clips, key=lambda clip: len(clip.speech))
    audio = np.concatenate((np.zeros(3200, np.int16), clip.speech[: len(clip.speech) // 2]))
    half = recognize_prefix(index, audio, clip.rate_hz)
    assert half
    assert clip.text.startswith(half)
    assert len(half) < len(clip.text)


@pytest.mark.parametrize("samples", [0, 100, 4000])
def test_very_short_audio_is_not_recognized(clips: list[KnownClip], samples: int) -> None:
    index = ClipIndex(clips)
    assert recognize(index, np.zeros(samples, np.int16), 16_000) == ""
    assert recognize_prefix(index, np.zeros(samples, np.int16), 16_000) == ""


def test_a_stream_ignores_trailing_silence(clips: list[KnownClip]) -> None:
    clip = min(clips, key=lambda clip: len(clip.speech))

    async def transcribe() -> str:
        engine = ScriptedAsr(clips)
        stream = engine.open(clip.rate_hz)
        stream.feed(clip.speech)
        stream.feed(np.zeros(clip.rate_hz * 2, np.int16))
        text = await stream.finish(clip.rate_hz * 2)
        await engine.stop()
        return text

    assert asyncio.run(transcribe()) == clip.text


def test_no_corpus_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="corpus"):
        known_clips("there-is-no-such-corpus")


def test_by_default_the_bundled_corpus_is_known(clips: list[KnownClip]) -> None:
    assert {clip.text for clip in clips} <= {clip.text for clip in known_clips(None)}
    assert len(known_clips(f"{BUNDLED}, {BUNDLED}")) == 2 * len(clips)


def test_a_known_clip_ends_where_callers_end_it(clips: list[KnownClip]) -> None:
    corpus = open_corpus(BUNDLED, check_clips=False)
    for clip, utterance in list(zip(clips, corpus.utterances, strict=True))[::11]:
        sent = render(corpus, utterance, Profile(), utterance.sample_rate_hz)
        assert (clip.speech_start_sample, clip.speech_end_sample) == (sent.speech_start_sample, sent.speech_end_sample)
        assert clip.speech_end_sample != utterance.speech_end_sample
