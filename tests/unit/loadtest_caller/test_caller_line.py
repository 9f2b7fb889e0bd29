"""A line is never dead, and knows which sample leaves when."""

import pytest

from loadtest.caller.line import Line
from tests.unit.loadtest_caller.caller_world import MS, make_clip


def test_between_utterances_the_background_goes_round() -> None:
    line = Line((b"a", b"b"))
    assert [line.take()[0] for _ in range(5)] == [b"a", b"b", b"a", b"b", b"a"]
    assert line.sent_frames == 5


def test_an_utterance_replaces_the_background_frame_by_frame() -> None:
    line, clip = Line((b"-",)), make_clip(speech_ms=40, lead_ms=10, tail_ms=0)
    line.take()
    line.say(clip)
    taken = [line.take() for _ in range(4)]
    assert [frame for frame, _, _ in taken] == [*clip.frames, b"-"]
    assert [index for _, _, index in taken] == [0, 1, 2, -1]
    assert line.clip_started_frame == 1


def test_a_caller_cannot_say_two_things_at_once() -> None:
    line = Line((b"-",))
    line.say(make_clip())
    with pytest.raises(RuntimeError, match="already speaking"):
        line.say(make_clip())


def test_hush_goes_back_to_the_background_at_once() -> None:
    line = Line((b"-",))
    line.say(make_clip())
    line.take()
    line.hush()
    assert line.take() == (b"-", None, -1)


def test_a_line_without_background_is_refused() -> None:
    with pytest.raises(ValueError, match="background"):
        Line(())


def test_a_sample_leaves_the_mouth_before_its_frame_is_sent() -> None:
    # As from a microphone: the frame goes out when its last sample has been spoken.
    clip = make_clip(speech_ms=1000, lead_ms=105)
    first = clip.speech_start_frame
    assert first == 5
    sent = 1_000 * MS
    # 5 ms into its frame of 20 ms: spoken 15 ms before the frame was sent.
    assert clip.moment_perf_ns(clip.rendered.speech_start_sample, first, sent) == sent - 15 * MS
