"""The virtual speaker: what a real-time player would have played, and when."""

from loadtest.conversation.playout import PlayoutBuffer
from tests.unit.loadtest.conversation.world import MS, RATE_HZ, silence, tone

T = 5_000 * MS


def _playout() -> PlayoutBuffer:
    return PlayoutBuffer("rms-10ms")


def test_starvation_inside_a_reply_is_an_underrun() -> None:
    playout = _playout()
    playback = playout.begin(RATE_HZ)
    playout.feed(playback, tone(100), T)
    playout.feed(playback, tone(100), T + 130 * MS)
    playout.feed(playback, tone(100), T + 240 * MS)
    assert playback.underruns_ns == [30 * MS, 10 * MS]


def test_reply_stopped_before_audible_sample_was_never_played() -> None:
    playout = _playout()
    playback = playout.begin(RATE_HZ)
    playout.feed(playback, silence(100) + tone(100), T)
    playout.stop(playback, T + 50 * MS)
    assert playback.first_audio_perf_ns is None
    assert playback.last_audio_perf_ns is None


def test_reply_stopped_before_it_came_plays_nothing() -> None:
    playout = _playout()
    playback = playout.begin(RATE_HZ)
    assert playback.played_ms(T) == 0
    playout.stop(playback, T)
    playout.feed(playback, tone(100), T + 10 * MS)
    assert playback.played_ms(T + 500 * MS) == 0
    assert (playback.first_audio_perf_ns, playback.last_audio_perf_ns, playback.audio_ns) == (None, None, 100 * MS)
