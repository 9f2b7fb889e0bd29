"""The closed-set recognizer: names what it knows through noise, and admits what it does not."""

import asyncio

import numpy as np
import pytest

from corpora.manifest.library import BUNDLED
from loadtest.errors import UsageError
from loadtest.targets.assistant.asr.known_clips import KnownClip
from loadtest.targets.assistant.asr.scripted import ClipBook, ScriptedAsr, recognize, recognize_prefix
from loadtest.targets.assistant.engines import known_clips


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
def test_knows_its_clips(clips: list[KnownClip], snr_db: float | None) -> None:
    book = ClipBook(clips)
    for seed, clip in enumerate(clips[::6]):
        heard = recognize(book, line(clip, snr_db, seed), clip.rate_hz)
        assert heard.text == clip.text
        assert heard.confidence is not None
        assert heard.confidence > 0.62


def test_unknown_speech_is_not_understood(clips: list[KnownClip]) -> None:
    book = ClipBook(clips[::2])
    known = {clip.text for clip in clips[::2]}
    strangers = [clip for clip in clips[1::2] if clip.text not in known][:12]
    heard = [recognize(book, line(clip, None, 0), clip.rate_hz) for clip in strangers]
    assert [transcript.text for transcript in heard] == [""] * len(strangers)
    assert all(transcript.confidence is not None and transcript.confidence < 0.62 for transcript in heard)


def test_partials_are_the_beginning_of_the_words(clips: list[KnownClip]) -> None:
    book = ClipBook(clips)
    clip = max(clips, key=lambda clip: len(clip.speech))
    heard = np.concatenate((np.zeros(3200, np.int16), clip.speech[: len(clip.speech) // 2]))
    half = recognize_prefix(book, heard, clip.rate_hz)
    assert half
    assert clip.text.startswith(half)
    assert len(half) < len(clip.text)


@pytest.mark.parametrize("samples", [0, 100, 4000])
def test_hardly_any_audio_is_not_understood(clips: list[KnownClip], samples: int) -> None:
    book = ClipBook(clips)
    assert recognize(book, np.zeros(samples, np.int16), 16_000).text == ""
    assert recognize_prefix(book, np.zeros(samples, np.int16), 16_000) == ""


def test_stream_ignores_the_silence_at_the_end(clips: list[KnownClip]) -> None:
    clip = min(clips, key=lambda clip: len(clip.speech))

    async def hear() -> str:
        engine = ScriptedAsr(clips)
        stream = engine.open(clip.rate_hz)
        stream.feed(clip.speech)
        stream.feed(np.zeros(clip.rate_hz * 2, np.int16))
        text = (await stream.finish(clip.rate_hz * 2)).text
        await engine.stop()
        return text

    assert asyncio.run(hear()) == clip.text


def test_no_corpus_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="corpus"):
        known_clips("there-is-no-such-corpus")


def test_without_a_name_the_bundled_corpus_is_always_known(clips: list[KnownClip]) -> None:
    assert {clip.text for clip in clips} <= {clip.text for clip in known_clips(None)}
    assert len(known_clips(f"{BUNDLED}, {BUNDLED}")) == 2 * len(clips)
