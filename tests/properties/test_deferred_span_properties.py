"""Audio scanned later shows the same as audio scanned on arrival, and how much is kept is bounded."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.audio.deferred_span import SLICE_SAMPLES, DeferredSpan
from loadtest.audio.onset import PRESETS, AudibleSpan
from tests.properties.test_audio_properties import runs, stream_of

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


def test_an_endless_stream_keeps_a_bounded_part_however_it_is_cut() -> None:
    for length in (480, SLICE_SAMPLES, 200_000):
        deferred = DeferredSpan(AudibleSpan("rms-10ms", 24_000))
        piece = np.full(length, 5_000, "<i2").tobytes()
        for _ in range(8_000_000 // length):
            deferred.add(piece)
            assert deferred.kept_samples < SLICE_SAMPLES


def test_who_asks_again_has_nothing_scanned_again() -> None:
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
