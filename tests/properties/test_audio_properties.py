"""However a stream is cut or how late it is scanned, its audible span and its resampled samples are the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.audio.deferred_span import SLICE_SAMPLES, DeferredSpan
from loadtest.audio.onset import PRESETS, AudibleSpan
from loadtest.audio.resample import StreamResampler, resample

# Levels around the threshold (327.68), in runs of a few milliseconds: the interesting decisions.
runs = st.lists(
    st.tuples(st.integers(1, 900), st.sampled_from([0, 100, 300, 327, 328, 329, 400, 5000, 32767])), max_size=25
)
cuts = st.lists(st.integers(0, 20_000), max_size=12)


def stream_of(pieces: list[tuple[int, int]]) -> np.ndarray:
    parts = [np.where(np.arange(length) % 2, level, -level) for length, level in pieces]
    return np.concatenate([np.zeros(0), *parts]).astype(np.int16)


@given(runs, cuts, st.sampled_from(PRESETS), st.sampled_from([8000, 22_050, 24_000]))
def test_any_cut_gives_the_same_span(pieces: list[tuple[int, int]], at: list[int], preset: str, rate_hz: int) -> None:
    stream = stream_of(pieces)
    whole, cut, unasked = (AudibleSpan(preset, rate_hz) for _ in range(3))
    whole.feed(stream)
    for piece in np.split(stream, sorted(min(place, len(stream)) for place in at)):
        cut.feed(piece)
        unasked.feed(piece)
        before = cut.first_sample, cut.last_sample
        assert before == (cut.first_sample, cut.last_sample)  # reading changes nothing
    assert (cut.first_sample, cut.last_sample) == (whole.first_sample, whole.last_sample)
    assert (unasked.first_sample, unasked.last_sample) == (whole.first_sample, whole.last_sample)


@given(runs, cuts, st.lists(st.integers(1, 20_000), min_size=1, max_size=6))
def test_any_cut_gives_the_same_last_sample_before_a_moment(
    pieces: list[tuple[int, int]], at: list[int], moments: list[int]
) -> None:
    stream = stream_of(pieces)
    whole, cut = AudibleSpan("rms-10ms", 24_000), AudibleSpan("rms-10ms", 24_000)
    whole.feed(stream)
    for piece in np.split(stream, sorted(min(place, len(stream)) for place in at)):
        cut.feed(piece)
    for moment in moments:
        before = cut.last_before(moment)
        assert before == whole.last_before(moment)
        assert before is None or before < moment


@given(runs, st.sampled_from(PRESETS))
def test_the_first_never_moves_and_the_last_only_forward(pieces: list[tuple[int, int]], preset: str) -> None:
    stream, span = stream_of(pieces), AudibleSpan(preset, 24_000)
    seen_first: int | None = None
    seen_last = -1
    for piece in np.array_split(stream, max(1, len(stream) // 100)):
        span.feed(piece)
        if seen_first is not None:
            assert span.first_sample == seen_first
        seen_first = span.first_sample
        last = span.last_sample
        if last is not None:
            assert seen_last <= last < len(stream)
            assert abs(int(stream[last])) > 327
            seen_last = last


@given(runs)
def test_the_sustained_preset_finds_nothing_the_other_does_not(pieces: list[tuple[int, int]]) -> None:
    stream = stream_of(pieces)
    rms, sustained = AudibleSpan("rms-10ms", 24_000), AudibleSpan("sustained-50ms", 24_000)
    rms.feed(stream)
    sustained.feed(stream)
    if sustained.first_sample is not None:
        assert rms.first_sample is not None
        assert rms.first_sample <= sustained.first_sample
        assert sustained.last_sample is not None
        assert sustained.last_sample - sustained.first_sample + 1 >= 1200


@given(st.integers(0, 2**32 - 1), st.integers(1, 4000), cuts, st.sampled_from([(16_000, 24_000), (22_050, 8_000)]))
def test_any_cut_resamples_the_same(seed: int, length: int, at: list[int], rates: tuple[int, int]) -> None:
    clip = np.random.default_rng(seed).integers(-32768, 32767, length).astype(np.int16)
    stream = StreamResampler(*rates)
    out = [stream.feed(piece) for piece in np.split(clip, sorted(min(place, length) for place in at))]
    assert np.array_equal(np.concatenate([*out, stream.flush()]), resample(clip, *rates))


# Pieces shorter than a window, of usual length, and longer than a slice.
lengths = st.sampled_from([1, 7, 160, 480, 2_400, 24_000, 30_000, 70_000])
# What is done after a piece arrives: nothing, or a question.
doings = st.sampled_from(["nothing", "nothing", "nothing", "last", "before"])
rates = st.sampled_from([8_000, 22_050, 24_000])


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(runs, st.lists(st.tuples(lengths, doings), max_size=30), st.sampled_from(PRESETS), rates, st.data())
def test_whenever_it_is_asked_it_knows_what_an_eager_scan_knows(
    sounds: list[tuple[int, int]], steps: list[tuple[int, str]], preset: str, rate_hz: int, data: st.DataObject
) -> None:
    sound = stream_of(sounds)
    deferred, eager = DeferredSpan(AudibleSpan(preset, rate_hz)), AudibleSpan(preset, rate_hz)
    at = 0
    for length, doing in steps:
        piece = np.resize(np.roll(sound, -at), length) if len(sound) else np.zeros(length, np.int16)
        at += length
        deferred.add(piece.astype("<i2").tobytes())
        eager.feed(piece)
        assert deferred.first_sample == eager.first_sample
        if doing == "last":
            assert deferred.last_sample == eager.last_sample
        elif doing == "before":
            moment = data.draw(st.integers(0, at + 10))
            assert deferred.last_before(moment) == eager.last_before(moment)
    assert deferred.first_sample == eager.first_sample
    assert deferred.last_sample == eager.last_sample
    assert [deferred.last_before(moment) for moment in range(0, at, 997)] == [
        eager.last_before(moment) for moment in range(0, at, 997)
    ]


class CountingSpan(AudibleSpan):
    """A span that counts what it is fed."""

    def __init__(self) -> None:
        super().__init__("rms-10ms", 24_000)
        self.fed_samples = 0

    def feed(self, pcm: np.ndarray) -> None:
        self.fed_samples += len(pcm)
        super().feed(pcm)


def test_endless_stream_keeps_bounded_audio_in_any_fragments() -> None:
    for length in (480, SLICE_SAMPLES, 200_000):
        deferred = DeferredSpan(AudibleSpan("rms-10ms", 24_000))
        piece = np.full(length, 5_000, "<i2").tobytes()
        for _ in range(8_000_000 // length):
            deferred.add(piece)
            assert deferred.kept_samples < SLICE_SAMPLES


def test_repeated_query_scans_nothing_again() -> None:
    span = CountingSpan()
    deferred = DeferredSpan(span)
    for _ in range(40):
        deferred.add(np.full(481, 5_000, "<i2").tobytes())  # ends inside a hop
    assert deferred.last_sample == 40 * 481 - 1
    before = span.fed_samples
    assert deferred.last_sample == 40 * 481 - 1
    assert span.fed_samples == before
    deferred.add(np.full(13, 5_000, "<i2").tobytes())
    assert deferred.last_sample == 40 * 481 + 12
