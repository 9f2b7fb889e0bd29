"""Voice activity detection: the bounds of speech in silence and in noise, for any frame size."""

import numpy as np
import pytest
import soxr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from corpora.manifest.library import BUNDLED, open_corpus
from loadtest.targets.assistant.endpointing import Endpointer, EnergyVad, SpeechStarted, SpeechStopped, percentiles

RATE = 24_000
Pcm = NDArray[np.int16]


def speech(seconds: float, level: float = 0.2) -> Pcm:
    at = np.arange(int(seconds * RATE)) / RATE
    voice = np.asarray(sum(np.sin(2 * np.pi * 150 * k * at) / k for k in range(1, 8)))
    rhythm = 0.5 - 0.45 * np.cos(2 * np.pi * 4 * at + np.pi)
    return (level * rhythm * voice / np.abs(voice).max() * 32767).astype(np.int16)


def silence(seconds: float) -> Pcm:
    return np.zeros(int(seconds * RATE), np.int16)


def utterances(pcm: Pcm, silence_ms: int = 300, frame: int = 480) -> list[tuple[int, int]]:
    vad, found = EnergyVad(RATE), []
    for at in range(0, len(pcm), frame):
        state = vad.feed(pcm[at : at + frame])
        if (
            state.speaking
            and state.last_speech_sample is not None
            and at + frame - state.last_speech_sample >= silence_ms * RATE // 1000
        ):
            assert state.speech_start_sample is not None
            found.append((state.speech_start_sample, state.last_speech_sample))
            vad.close()
    return found


def test_bounds_in_digital_silence_are_exact_to_a_few_milliseconds() -> None:
    found = utterances(np.concatenate((silence(0.5), speech(1.0), silence(1.0), speech(0.6), silence(1.0))))
    assert len(found) == 2
    for (start, end), (true_start, true_end) in zip(found, [(0.5, 1.5), (2.5, 3.1)], strict=True):
        assert abs(start / RATE - true_start) <= 0.012
        assert abs(end / RATE - true_end) <= 0.012


def test_framing_does_not_matter() -> None:
    pcm = np.concatenate((silence(0.5), speech(1.0), silence(1.0)))
    assert utterances(pcm, frame=480)[0] == utterances(pcm, frame=160)[0] == utterances(pcm, frame=333)[0]


@pytest.mark.parametrize("pcm", [silence(3), np.full(3 * RATE, 1200, np.int16)], ids=["silence", "constant"])
def test_no_speech_is_detected_without_speech(pcm: Pcm) -> None:
    assert utterances(pcm) == []


def test_a_click_is_not_speech() -> None:
    pcm = silence(3)
    pcm[RATE : RATE + 200] = 20_000
    assert utterances(pcm) == []


def test_steady_noise_is_not_speech_and_does_not_mask_it() -> None:
    rng = np.random.default_rng(1)
    utterance = speech(1.2)
    clean = np.concatenate((silence(1.5), utterance, silence(1.5))).astype(np.float64)
    noise = rng.standard_normal(len(clean)) * np.sqrt(np.mean(utterance.astype(np.float64) ** 2)) * 10 ** (-10 / 20)
    found = utterances(np.clip(clean + noise, -32768, 32767).astype(np.int16))
    assert len(found) == 1
    assert abs(found[0][0] / RATE - 1.5) < 0.15
    assert abs(found[0][1] / RATE - 2.7) < 0.15


def test_ends_agree_with_the_annotations_of_the_corpus() -> None:
    corpus = open_corpus(BUNDLED)
    errors_ms = []
    for utterance in corpus.utterances[::8]:
        samples = soxr.resample(corpus.read(utterance), utterance.sample_rate_hz, RATE)
        pcm = np.concatenate((silence(0.5), (np.clip(samples, -1, 1) * 32767).astype(np.int16), silence(1.0)))
        _, end = utterances(pcm, silence_ms=600)[-1]
        true_end = 0.5 + utterance.speech_end_sample / utterance.sample_rate_hz
        errors_ms.append((end / RATE - true_end) * 1000)
    assert abs(np.median(errors_ms)) <= 10
    assert np.max(np.abs(errors_ms)) <= 100


def test_sample_times_follow_the_microphone_convention() -> None:
    endpointer, events = Endpointer(RATE), []
    pcm = np.concatenate((silence(0.5), speech(1.0), silence(0.6)))
    for index, at in enumerate(range(0, len(pcm), 480)):
        # The frame with samples at .. at+479 arrives when the last of them was spoken.
        arrival = 5_000_000_000 + (index + 1) * 20_000_000
        events += endpointer.feed(pcm[at : at + 480], arrival, prefix_padding_ms=300, silence_duration_ms=500)
    started, stopped = events
    assert isinstance(started, SpeechStarted)
    assert isinstance(stopped, SpeechStopped)
    spoken_from_ns = started.speech_start_perf_ns - 5_000_000_000
    assert spoken_from_ns - started.audio_start_ns == pytest.approx(300_000_000, abs=50_000)
    assert stopped.speech_end_perf_ns - 5_000_000_000 == pytest.approx(stopped.speech_end_audio_ns, abs=50_000)
    assert abs(stopped.speech_end_audio_ns - 1_500_000_000) < 12_000_000
    waited_ns = stopped.audio_end_ns - stopped.speech_end_audio_ns
    assert 500_000_000 <= waited_ns <= 521_000_000


def test_a_late_frame_makes_its_samples_late() -> None:
    endpointer = Endpointer(RATE)
    pcm = np.concatenate((silence(0.5), speech(1.0)))
    arrival = 0
    for at in range(0, len(pcm), 480):
        arrival = (at // 480 + 1) * 20_000_000 + (40_000_000 if at >= len(pcm) - 480 else 0)
        endpointer.feed(pcm[at : at + 480], arrival, prefix_padding_ms=300, silence_duration_ms=None)
    assert endpointer.moment_of(len(pcm) - 1) == pytest.approx(arrival, abs=50_000)


def test_a_manual_turn_without_speech_counts_as_a_whole() -> None:
    endpointer = Endpointer(RATE)
    endpointer.feed(silence(1.0), 1_000_000_000, prefix_padding_ms=300, silence_duration_ms=None)
    assert len(endpointer.turn_audio()) == RATE
    assert endpointer.close().speech_end_audio_ns == pytest.approx(1_000_000_000, abs=50_000)
    assert len(endpointer.turn_audio()) == 0


@given(
    arrays(np.float64, st.integers(1, 300), elements=st.floats(-120, 0)),
    st.lists(st.integers(0, 100), min_size=1, max_size=3),
)
def test_percentiles_are_those_of_numpy(values: NDArray[np.float64], percents: list[int]) -> None:
    assert percentiles(values, tuple(percents)) == tuple(np.percentile(values, percents))
