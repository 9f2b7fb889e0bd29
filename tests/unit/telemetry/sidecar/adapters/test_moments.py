"""Timestamps from stated latencies and the moments of spans."""

from hypothesis import given
from hypothesis import strategies as st

from telemetry.sidecar.adapters.framework_turns import Latency, place

NAMES = ("speech_end", "endpoint", "asr_final", "first_audio", "speech_start", "tts_first_chunk")


def test_a_latency_is_kept_to_the_nanosecond() -> None:
    placed = place([Latency("speech_end", "first_audio", 123_456_789)], {"first_audio": 10**18}, 0)
    assert placed == {"first_audio": 10**18, "speech_end": 10**18 - 123_456_789}


def test_points_are_placed_by_the_moment_that_is_believed_first() -> None:
    latencies = [Latency("speech_end", "first_audio", 400), Latency("speech_end", "asr_final", 150)]
    placed = place(latencies, {"asr_final": 1_150, "first_audio": 9_999, "tts_first_chunk": 1_390}, 0)
    assert placed == {"speech_end": 1_000, "asr_final": 1_150, "first_audio": 1_400, "tts_first_chunk": 1_390}


def test_without_a_moment_only_the_latencies_are_left() -> None:
    """Times elsewhere on the clock would look as if they had been measured against them."""
    placed = place([Latency("speech_end", "first_audio", 400)], {"tts_first_chunk": 7_000}, 1_000)
    assert placed == {"speech_end": 1_000, "first_audio": 1_400}


def test_first_of_two_contradicting_latencies_counts() -> None:
    latencies = [Latency("speech_end", "endpoint", 200), Latency("speech_end", "endpoint", 900)]
    assert place(latencies, {"endpoint": 1_000}, 0) == {"speech_end": 800, "endpoint": 1_000}


@given(
    st.dictionaries(st.sampled_from(NAMES), st.integers(-(10**12), 10**12), min_size=2),
    st.data(),
)
def test_true_latencies_and_moments_give_the_true_points(true: dict[str, int], data: st.DataObject) -> None:
    """Whatever is stated of points that lie somewhere: what is placed lies there, up to a common shift."""
    names = sorted(true)
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=8))
    latencies = [Latency(one, other, true[other] - true[one]) for one, other in pairs if one != other]
    moments = {name: true[name] for name in data.draw(st.lists(st.sampled_from(names), unique=True))}
    placed = place(latencies, moments, 0)
    shifts = {placed[name] - true[name] for name in placed}
    assert len(shifts) <= 1
    if shifts and shifts != {0}:
        assert placed.keys().isdisjoint(moments)
