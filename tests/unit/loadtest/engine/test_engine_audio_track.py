"""A line is never dead, and knows which sample leaves when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.engine.audio_track import AudioTrack
from loadtest.engine.timing_wheel import WheelEntry, WheelSlot
from tests.unit.loadtest.conversation.world import MS, make_clip


def _track(background: tuple[bytes, ...]) -> AudioTrack:
    """A line of a caller who has no seat: nothing is laid out."""
    return AudioTrack(background, WheelEntry(len))


def _sent_frames(track: AudioTrack) -> int:
    """Frames that have gone out so far, those that were laid out among them."""
    track._count()
    return track._sent


def test_between_utterances_the_background_goes_round() -> None:
    track = _track((b"a", b"b"))
    assert [track.take()[0] for _ in range(5)] == [b"a", b"b", b"a", b"b", b"a"]
    assert _sent_frames(track) == 5


def test_an_utterance_replaces_the_background_frame_by_frame() -> None:
    track, clip = _track((b"-",)), make_clip(speech_ms=40, lead_ms=10, tail_ms=0)
    track.take()
    track.say(clip)
    taken = [track.take() for _ in range(4)]
    assert [frame for frame, _, _ in taken] == [*clip.frames, b"-"]
    assert [index for _, _, index in taken] == [0, 1, 2, -1]
    assert track.clip_started_frame == 1


class Sender:
    """Sends as the engine does: what is laid out comes from the row, for anything else the line is asked."""

    def __init__(self, *, ahead: bool) -> None:
        self.slot: WheelSlot[str] = WheelSlot(0, 20 * MS)
        self.seat: WheelEntry[str] = WheelEntry(len)
        self.slot.add(self.seat, "caller", 0)
        self.track = AudioTrack((b"a", b"b", b"c"), self.seat)
        self.ahead = ahead
        self.asked_for: list[int] = []

    def send(self, frames: int) -> list[tuple[bytes, int]]:
        """Each frame and the clock of the call behind it."""
        sent = []
        for _ in range(frames):
            ((_, _, frame, _),) = self.slot.take_row(self.slot.due_perf_ns)
            if frame is None:
                frame, _, index = self.track.take()
                self.asked_for.append(index)
                if self.ahead:
                    self.track.look_ahead()
            sent.append((frame, _sent_frames(self.track)))
        return sent

    @property
    def state(self) -> tuple[object, ...]:
        track = self.track
        return track.clip, None if track.clip is None else track._clip_frame, track.voiced, track.clip_started_frame


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["say", "mute", "look back", "on"])), max_size=12))
def test_looking_ahead_changes_nothing_of_what_is_sent(steps: list[tuple[int, str]]) -> None:
    clip = make_clip(speech_ms=500, lead_ms=130, tail_ms=90)
    one, other = Sender(ahead=False), Sender(ahead=True)
    for frames, then in steps:
        assert one.send(frames) == other.send(frames)
        assert one.state == other.state
        if then == "say" and one.track.clip is None:
            one.track.say(clip)
            other.track.say(clip)
        elif then == "mute":
            one.track.mute()
            other.track.mute()
        elif then == "look back":
            other.track.look_no_further()


def test_the_first_and_the_last_frame_with_voice_are_always_asked_for() -> None:
    clip = make_clip(speech_ms=500, lead_ms=130, tail_ms=90)
    sender = Sender(ahead=True)
    sender.track.say(clip)
    sender.send(len(clip.frames))
    assert {clip.speech_start_frame, clip.speech_end_frame} <= set(sender.asked_for)
    assert len(sender.asked_for) < len(clip.frames) // 3, "the others were laid out"


def test_no_further_ahead_is_looked_than_is_asked_for() -> None:
    sender = Sender(ahead=False)
    sender.track.look_ahead(0)
    assert sender.seat.ahead == 0
    sender.track.look_ahead(3)
    assert sender.seat.ahead == 3


def test_a_caller_cannot_say_two_things_at_once() -> None:
    track = _track((b"-",))
    track.say(make_clip())
    with pytest.raises(RuntimeError, match="already speaking"):
        track.say(make_clip())


def test_hush_goes_back_to_the_background_at_once() -> None:
    track = _track((b"-",))
    track.say(make_clip())
    track.take()
    track.mute()
    assert track.take() == (b"-", None, -1)


def test_a_line_without_background_is_refused() -> None:
    with pytest.raises(ValueError, match="background"):
        _track(())


def test_a_sample_leaves_the_mouth_before_its_frame_is_sent() -> None:
    # As from a microphone: the frame goes out when its last sample has been spoken.
    clip = make_clip(speech_ms=1000, lead_ms=105)
    first = clip.speech_start_frame
    assert first == 5
    sent = 1_000 * MS
    # 5 ms into its frame of 20 ms: spoken 15 ms before the frame was sent.
    assert clip.moment_perf_ns(clip.rendered.speech_start_sample, first, sent) == sent - 15 * MS
