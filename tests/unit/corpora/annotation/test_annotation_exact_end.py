"""Tests of the exact end of speech: sounds whose end is known by calculation, and a direct search compared with
ours."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from corpora.annotation.exact_end import FADE_S, find_exact_end
from corpora.annotation.levels import active_speech_level_dbov
from corpora.manifest.manifest import Utterance

RATE_HZ = 16_000
LEAD_S = 0.3


def utterance(
    samples: NDArray[Any], start: int, end: int, rate_hz: int = RATE_HZ, end_ms: float | None = 0
) -> Utterance:
    words = dict.fromkeys(("path", "text", "speaker", "language", "domain", "license", "source", "sha256"), "x")
    bounds = {"speech_start_sample": start, "speech_end_sample": end, "speech_end_uncertainty_ms": end_ms}
    return Utterance(id="it", sample_rate_hz=rate_hz, samples=len(samples), **words, **bounds)  # type: ignore[arg-type]


def noise(samples: int, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(samples)


def decaying(rate_hz: int, decibels_per_s: float, floor_db: float | None = None) -> NDArray[np.float64]:
    """Silence, 1 s of noise, its decay by so many dB a second for 0.5 s, and all of it on a floor relative to it."""
    lead, body, tail = (round(seconds * rate_hz) for seconds in (LEAD_S, 1.0, 0.5))
    sound = 0.1 * noise(body + tail)
    sound[body:] *= 10.0 ** (-decibels_per_s * np.arange(tail) / rate_hz / 20.0)
    whole = np.concatenate((np.zeros(lead), sound, np.zeros(lead)))
    return whole if floor_db is None else whole + 0.1 * 10.0 ** (floor_db / 20.0) * noise(len(whole), 2)


def end_s(samples: NDArray[np.float64], rate_hz: int) -> float:
    """The exact end of `decaying`, in seconds after the decay began."""
    lead, body, tail = (round(seconds * rate_hz) for seconds in (LEAD_S, 1.0, 0.5))
    exact_end = find_exact_end(samples, utterance(samples, lead, lead + body + tail - 1, rate_hz))
    assert exact_end is not None
    return (exact_end - lead - body) / rate_hz


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 16_000, 24_000, 48_000])
@pytest.mark.parametrize("decibels_per_s", [100.0, 200.0, 500.0])
def test_a_decay_ends_where_it_is_25_db_down_at_every_rate(rate_hz: int, decibels_per_s: float) -> None:
    assert end_s(decaying(rate_hz, decibels_per_s), rate_hz) == pytest.approx(
        26.0 / decibels_per_s, abs=0.005 + 1.5 / decibels_per_s
    ), "the pause before silence, which P.56 counts as active, lowers the active level by about 1 dB"


def test_a_noise_floor_ends_it_12_db_above() -> None:
    assert end_s(decaying(RATE_HZ, 100.0, -30.0), RATE_HZ) == pytest.approx(0.19, abs=0.02)
    assert end_s(decaying(RATE_HZ, 100.0, -60.0), RATE_HZ) == pytest.approx(0.26, abs=0.02), "25 dB come first"


@pytest.mark.parametrize("last", [9_000, 9_001, 9_157])
@pytest.mark.parametrize("softer_db", [0.0, 20.0])
def test_speech_in_digital_silence_ends_at_its_last_sample(last: int, softer_db: float) -> None:
    """A last part that is 20 dB softer, as a nasal is, belongs to the speech."""
    samples = np.zeros(12_000)
    samples[2_000 : last + 1] = 0.1 * np.sign(noise(last - 1_999))
    samples[last - 959 : last + 1] *= 10.0 ** (-softer_db / 20.0)
    assert find_exact_end(samples, utterance(samples, 2_000, last, end_ms=15.0)) == last


def test_sound_after_latest_end_of_speech_is_not_speech() -> None:
    samples = np.zeros(32_000)
    samples[3_200:16_000] = 0.1 * noise(12_800)
    samples[24_000:25_000] = 0.5 * noise(1_000, 2)  # a door
    assert find_exact_end(samples, utterance(samples, 3_200, 16_100, end_ms=50.0)) == pytest.approx(15_999, abs=3)
    everything = utterance(samples, 3_200, 24_999, end_ms=0.0)
    assert find_exact_end(samples, everything) == pytest.approx(24_999, abs=3), "a person says that it is speech"


def test_end_annotated_too_early_may_move_within_uncertainty() -> None:
    samples = 1e-4 * noise(32_000, 2)
    samples[3_200:16_000] = 0.1 * noise(12_800)
    for stated_ms, latest in ((None, 14_000), (0.0, 14_000), (50.0, 14_800), (200.0, 15_999)):
        exact_end = find_exact_end(samples, utterance(samples, 3_200, 14_000, end_ms=stated_ms))
        assert exact_end == pytest.approx(latest, abs=3)


@pytest.mark.parametrize("snr_db", [27.0, 20.0, 10.0, 0.0])
def test_noise_that_covers_soft_speech_leaves_no_certain_end(snr_db: float) -> None:
    samples = decaying(RATE_HZ, 100.0, -snr_db)
    start = round(LEAD_S * RATE_HZ)
    assert find_exact_end(samples, utterance(samples, start, start + 24_000 - 1)) is None


def test_speech_up_to_end_of_file_leaves_room_for_fade() -> None:
    samples = 0.1 * np.sign(noise(16_000))
    samples[:3_200] = 0.0
    assert find_exact_end(samples, utterance(samples, 3_200, 15_999)) == 15_999 - round(FADE_S * RATE_HZ)


@pytest.mark.parametrize(("length", "is_long_enough"), [(60, False), (239, False), (240, True)])
def test_a_clip_must_hold_10_ms_of_speech_and_the_fade(length: int, is_long_enough: bool) -> None:
    samples = np.concatenate((np.zeros(400), 0.1 * np.sign(noise(length))))
    exact_end = find_exact_end(samples, utterance(samples, 400, 399 + length))
    assert exact_end == (559 if is_long_enough else None)


def test_soft_speech_is_judged_by_its_own_level() -> None:
    expected = end_s(decaying(RATE_HZ, 200.0, -40.0), RATE_HZ)
    for gain in (1e-6, 1e-3, 0.1, 50.0, 1e9):  # a clip in floating point may have any level
        assert end_s(gain * decaying(RATE_HZ, 200.0, -40.0), RATE_HZ) == expected


def test_one_loud_sample_is_no_speech() -> None:
    samples = np.zeros(16_000)
    samples[4_000] = 1.0
    assert find_exact_end(samples, utterance(samples, 4_000, 4_159)) is None
    samples[4_080] = 1.0
    assert find_exact_end(samples, utterance(samples, 4_000, 4_159)) == 4_080


def test_a_constant_offset_counts_as_noise() -> None:
    samples = decaying(RATE_HZ, 100.0) + 0.1 * 10 ** (-32 / 20)
    assert end_s(samples, RATE_HZ) == pytest.approx(0.20, abs=0.02)


def _direct(samples: NDArray[np.float64], start: int, end: int, latest: int) -> int | None:
    """The rule in words, one window after the other from the last, with levels in dB."""
    peak = np.abs(samples).max()
    pcm = np.rint(samples / peak * 32_767)
    active_db = active_speech_level_dbov(samples / peak, RATE_HZ, start, end)

    squares = [float(value) ** 2 for value in pcm]

    def level_db(begin: int) -> float:
        power = sum(squares[begin : begin + 160]) / 160 / 32_767**2
        return 10 * math.log10(power) if power else -math.inf

    def fifth_percentile(begins: list[int]) -> float:
        ordered = sorted(levels_db[begin] for begin in begins)
        return ordered[int((len(ordered) - 1) * 0.05)]

    # The noise of `samples` leaves no padding, and 1,500 samples before the speech.
    everywhere = list(range(len(pcm) - 159))
    levels_db = [level_db(begin) for begin in everywhere]
    outside = [begin for begin in everywhere if begin + 160 <= start or begin > latest]
    floor_db = min(fifth_percentile(everywhere), fifth_percentile(outside))
    threshold_db = max(active_db - 25, floor_db + 12)
    if threshold_db > active_db - 15.9:
        return None
    for begin in range(min(latest, len(pcm) - 1 - 80) - 159, start - 1, -1):
        if level_db(begin) >= threshold_db:
            reached = [at for at in range(begin, begin + 160) if abs(pcm[at]) / 32_767 >= 10 ** (threshold_db / 20)]
            return reached[-1]
    return None


@pytest.mark.slow
@given(
    seed=st.integers(0, 1000),
    floor_db=st.sampled_from([-80.0, -45.0, -35.0, -29.0, -26.0, -15.0]),
    pieces=st.lists(st.tuples(st.integers(40, 600), st.floats(-60, 0)), min_size=1, max_size=8),
    later_ms=st.sampled_from([0.0, 12.5, 60.0]),
)
def test_the_end_is_that_of_a_direct_search(
    seed: int, floor_db: float, pieces: list[tuple[int, float]], later_ms: float
) -> None:
    body = np.concatenate(
        [0.3 * 10.0 ** (db / 20.0) * noise(length, seed + at) for at, (length, db) in enumerate(pieces)]
    )
    samples = np.pad(body, 1_500)
    samples += 0.1 * 10.0 ** (floor_db / 20.0) * noise(len(samples), seed + 99)
    start, end = 1_500, 1_500 + len(body) - 1
    exact_end = find_exact_end(samples, utterance(samples, start, end, end_ms=later_ms))
    expected = _direct(samples, start, end, end + round(later_ms * 16))
    assert exact_end == expected


def padded_noise(outside_s: float) -> tuple[NDArray[np.float64], Utterance]:
    """Noisy speech in digital silence: 20 dB over noise that goes on for so long around it."""
    edge = round(outside_s * RATE_HZ)
    recorded = np.pad(0.1 * noise(16_000), edge) + 0.01 * noise(16_000 + 2 * edge, 2)
    samples = np.pad(recorded, 8_000)
    return samples, utterance(samples, 8_000 + edge, 8_000 + edge + 15_999)


def test_padding_with_digital_silence_does_not_hide_the_noise() -> None:
    assert find_exact_end(*padded_noise(0.2)) is None
    # Without any noise outside the speech, its end is that of the recording, with or without noise in it.
    assert find_exact_end(*padded_noise(0.0)) == pytest.approx(23_999, abs=3)


def test_padding_moves_the_end_with_the_speech() -> None:
    samples = decaying(RATE_HZ, 100.0, -45.0)
    start = round(LEAD_S * RATE_HZ)
    exact_end = find_exact_end(samples, utterance(samples, start, start + 23_999))
    assert exact_end is not None
    padded = np.pad(samples, (1_234, 777))
    assert find_exact_end(padded, utterance(padded, start + 1_234, start + 1_234 + 23_999)) == exact_end + 1_234


@given(
    seed=st.integers(0, 10_000),
    length=st.integers(2, 2_500),
    rate_hz=st.sampled_from([8_000, 11_025, 48_000]),
    kind=st.sampled_from(["noise", "sparse", "click", "constant", "gap", "decay"]),
    level=st.floats(-9, 6),
    stated_ms=st.sampled_from([None, 0.0, 15.0, 600_000.0]),
)
def test_any_clip_has_an_end_within_its_speech_or_none(
    seed: int, length: int, rate_hz: int, kind: str, level: float, stated_ms: float | None
) -> None:
    rng = np.random.default_rng(seed)
    samples = rng.standard_normal(length) * 10.0**level
    first, last = sorted(rng.choice(length, 2, replace=False).tolist())
    if kind == "sparse":
        samples[rng.random(length) < 0.95] = 0.0
    elif kind == "click":
        samples[np.arange(length) != first] = 0.0
    elif kind == "constant":
        samples[:] = samples[0]
    elif kind == "gap":
        samples[first + 1 : last] = 0.0
    elif kind == "decay":
        samples *= np.exp(-np.arange(length) / rng.uniform(1, 500))
    exact_end = find_exact_end(samples, utterance(samples, first, last, rate_hz, stated_ms))
    if exact_end is not None:
        assert first < exact_end <= length - 1 - round(FADE_S * rate_hz)
        assert exact_end <= last + round((stated_ms or 0.0) / 1000 * rate_hz)
        assert samples[first : exact_end + 1].any()
