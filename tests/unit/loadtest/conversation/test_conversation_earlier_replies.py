"""Audio that answers no question: played, unless its reply was stopped, and waited for."""

from loadtest.conversation.hearing import EarlierReplies
from loadtest.conversation.playout import PlayoutBuffer
from tests.unit.loadtest.conversation.world import MS, audio, silence, tone

NOW = 1_000 * MS


def test_what_is_heard_is_played_and_can_answer_no_later_question() -> None:
    playout = PlayoutBuffer("rms-10ms")
    earlier = EarlierReplies(playout)
    earlier.hear(audio(tone(300), "greeting"), NOW)
    assert playout.playing_until_perf_ns == NOW + 300 * MS
    assert earlier.known == {"greeting"}
    assert [reply.response_id for reply in earlier.heard] == ["greeting"]


def test_the_wait_ends_with_the_last_audible_sample_and_not_with_the_silence_after_it() -> None:
    earlier = EarlierReplies(PlayoutBuffer("rms-10ms"))
    assert earlier.heard_until(NOW) == NOW
    earlier.hear(audio(tone(300) + silence(500), "greeting"), NOW)
    assert abs(earlier.heard_until(NOW) - (NOW + 300 * MS)) <= MS
    assert earlier.heard_until(NOW + 400 * MS) == NOW + 400 * MS


def test_what_still_comes_of_a_stopped_reply_is_not_played() -> None:
    playout = PlayoutBuffer("rms-10ms")
    earlier = EarlierReplies(playout)
    earlier.mute("stopped")
    earlier.hear(audio(tone(300), "stopped"), NOW)
    assert playout.playing_until_perf_ns == 0
    assert not earlier.heard
    assert earlier.known == {"stopped"}
