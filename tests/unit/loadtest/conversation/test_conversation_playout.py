"""The virtual speaker: what a real-time player would have played, and when."""

from loadtest.conversation.playout import PlayoutBuffer
from tests.unit.loadtest.conversation.world import MS, RATE_HZ, silence, tone

T = 5_000 * MS


def _playout() -> PlayoutBuffer:
    return PlayoutBuffer("rms-10ms")


def test_audible_audio_is_heard_on_arrival() -> None:
    playout = _playout()
    playback = playout.begin(RATE_HZ)
    playout.feed(playback, tone(100), T)
    assert playback.first_audio_perf_ns == T
    assert playback.leading_silence_ns == 0
    assert playback.last_audio_perf_ns is not None
    assert abs(playback.last_audio_perf_ns - (T + 100 * MS)) <= MS


def test_leading_silence_counts_as_waiting_and_is_reported_alone() -> None:
    playout = _playout()
    playback = playout.begin(RATE_HZ)
    playout.feed(playback, silence(60), T)
    playout.feed(playback, silence(20) + tone(40), T + 10 * MS)
    assert playback.first_audio_perf_ns is not None
    assert abs(playback.first_audio_perf_ns - (T + 80 * MS)) <= MS
    assert abs((playback.leading_silence_ns or 0) - 80 * MS) <= MS
    assert playback.underruns_ns == []


def test_a_burst_plays_in_real_time_behind_what_is_playing() -> None:
    playout = _playout()
    playback = playout.begin(RATE_HZ)
    for _ in range(10):
        playout.feed(playback, tone(100), T)
    assert playout.playing_until_perf_ns == T + 1_000 * MS
    assert playback.audio_ns == 1_000 * MS
    assert playback.played_ms(T + 250 * MS) == 250
    assert playback.played_ms(T + 5_000 * MS) == 1000


def test_starvation_inside_a_reply_is_an_underrun() -> None:
    playout = _playout()
    playback = playout.begin(RATE_HZ)
    playout.feed(playback, tone(100), T)
    playout.feed(playback, tone(100), T + 130 * MS)
    playout.feed(playback, tone(100), T + 240 * MS)
    assert playback.underruns_ns == [30 * MS, 10 * MS]


def test_reply_queued_after_another_is_no_underrun() -> None:
    playout = _playout()
    first, second = playout.begin(RATE_HZ), playout.begin(RATE_HZ)
    playout.feed(first, tone(300), T)
    playout.feed(second, tone(100), T + 100 * MS)
    assert second.first_audio_perf_ns == T + 300 * MS
    assert second.underruns_ns == []


def test_stopped_audio_is_not_played() -> None:
    playout = _playout()
    playback = playout.begin(RATE_HZ)
    playout.feed(playback, tone(500), T)
    playout.stop(playback, T + 200 * MS)
    playout.feed(playback, tone(500), T + 300 * MS)
    assert playback.last_audio_perf_ns == T + 200 * MS
    assert playback.played_ms(T + 1_000 * MS) == 200
    assert playout.playing_until_perf_ns == T + 200 * MS


def test_reply_stopped_before_audible_sample_was_never_played() -> None:
    playout = _playout()
    playback = playout.begin(RATE_HZ)
    playout.feed(playback, silence(100) + tone(100), T)
    playout.stop(playback, T + 50 * MS)
    assert playback.first_audio_perf_ns is None
    assert playback.last_audio_perf_ns is None


def test_silence_alone_is_never_heard() -> None:
    playout = _playout()
    playback = playout.begin(RATE_HZ)
    playout.feed(playback, silence(1000), T)
    assert playback.first_audio_perf_ns is None
    assert playback.leading_silence_ns is None


def test_reply_stopped_before_it_came_plays_nothing() -> None:
    playout = _playout()
    playback = playout.begin(RATE_HZ)
    assert playback.played_ms(T) == 0
    playout.stop(playback, T)
    playout.feed(playback, tone(100), T + 10 * MS)
    assert playback.played_ms(T + 500 * MS) == 0
    assert (playback.first_audio_perf_ns, playback.last_audio_perf_ns, playback.audio_ns) == (None, None, 100 * MS)
