"""An audio track sends continuously, and each sample's time is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.engine.audio_track import BACKGROUND_AHEAD, SPEECH_AHEAD, AudioTrack
from loadtest.engine.timing_wheel import WheelEntry, WheelSlot
from tests.unit.loadtest.conversation.world import MS, make_clip


def _track(background: tuple[bytes, ...]) -> AudioTrack:
    """A track whose entry is in no slot: nothing is scheduled."""
    return AudioTrack(background, WheelEntry(len))


def _sent_frames(track: AudioTrack) -> int:
    """Frames that have gone out so far, those that were scheduled ahead among them."""
    track._sync()
    return track._sent


def test_between_utterances_the_background_repeats() -> None:
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


def test_an_utterance_begins_after_so_many_frames_of_the_background() -> None:
    track, clip = _track((b"a", b"b", b"c")), make_clip(speech_ms=40, lead_ms=10, tail_ms=0)
    track.take()
    track.say(clip, 2)
    assert not track.in_speech
    taken = [track.take() for _ in range(6)]
    assert [frame for frame, _, _ in taken] == [b"b", b"c", *clip.frames, b"a"]
    assert [(spoken is clip, index) for _, spoken, index in taken] == [
        (False, -1),
        (False, -1),
        (True, 0),
        (True, 1),
        (True, 2),
        (False, -1),
    ]
    assert track.clip_started_frame == 3


class Sender:
    """Sends as the engine does: scheduled frames come from the row, others from the track."""

    def __init__(self, *, ahead: bool) -> None:
        self.slot: WheelSlot[str] = WheelSlot(0, 20 * MS)
        self.entry: WheelEntry[str] = WheelEntry(len)
        self.slot.add(self.entry, "caller", 0)
        self.track = AudioTrack((b"a", b"b", b"c"), self.entry)
        self.ahead = ahead
        self.taken: list[int] = []

    def send(self, frames: int) -> list[tuple[bytes, int]]:
        """Send frames and return each with the call's frame count after it."""
        sent = []
        for _ in range(frames):
            ((_, _, frame, _),) = self.slot.take_row(self.slot.due_perf_ns)
            if frame is None:
                frame, _, index = self.track.take()
                self.taken.append(index)
                if self.ahead:
                    self.track.schedule_ahead()
            sent.append((frame, _sent_frames(self.track)))
        return sent

    @property
    def state(self) -> tuple[object, ...]:
        track = self.track
        return track.clip, None if track.clip is None else track._clip_frame, track.in_speech, track.clip_started_frame


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from(["say", "say in 3", "say in 200", "mute", "clear", "on"])),
        max_size=12,
    )
)
def test_scheduling_ahead_does_not_change_what_is_sent(steps: list[tuple[int, str]]) -> None:
    clip = make_clip(speech_ms=500, lead_ms=130, tail_ms=90)
    one, other = Sender(ahead=False), Sender(ahead=True)
    for frames, then in steps:
        assert one.send(frames) == other.send(frames)
        assert one.state == other.state
        if then.startswith("say") and one.track.clip is None:
            after = int(then[7:] or 0)
            one.track.say(clip, after)
            other.track.say(clip, after)
        elif then == "mute":
            one.track.mute()
            other.track.mute()
        elif then == "clear":
            other.track.clear_ahead()


def test_the_first_and_last_frame_with_speech_are_always_taken_one_by_one() -> None:
    clip = make_clip(speech_ms=500, lead_ms=130, tail_ms=90)
    sender = Sender(ahead=True)
    sender.track.say(clip)
    sender.send(len(clip.frames))
    assert {clip.speech_start_frame, clip.speech_end_frame} <= set(sender.taken)
    assert len(sender.taken) < len(clip.frames) // 3, "the others were scheduled ahead"


def test_no_more_frames_are_scheduled_than_requested() -> None:
    sender = Sender(ahead=False)
    sender.track.schedule_ahead(0)
    assert sender.entry.ahead == 0
    sender.track.schedule_ahead(3)
    assert sender.entry.ahead == 3


@given(st.integers(1, 9), st.lists(st.integers(0, 2 * BACKGROUND_AHEAD), min_size=1, max_size=6))
def test_a_background_of_any_length_goes_on_where_it_was(size: int, counts: list[int]) -> None:
    slot: WheelSlot[str] = WheelSlot(0, 20 * MS)
    entry: WheelEntry[str] = WheelEntry(len)
    slot.add(entry, "caller", 0)
    background = tuple(f"{number}".encode() for number in range(size))
    track = AudioTrack(background, entry)
    sent: list[bytes] = []
    for count in counts:
        track.schedule_ahead(count)
        assert entry.ahead == min(count, BACKGROUND_AHEAD)
        while entry.ahead:
            sent += [frame for _, _, frame, _ in slot.take_row(slot.due_perf_ns) if frame is not None]
        sent.append(track.take()[0])
    assert sent == [background[at % size] for at in range(len(sent))]


def test_few_frames_of_an_utterance_and_many_of_the_background_are_kept_ahead() -> None:
    clip = make_clip(speech_ms=2000, lead_ms=1000, tail_ms=90)
    sender = Sender(ahead=True)
    sender.track.schedule_ahead()
    assert sender.entry.ahead == BACKGROUND_AHEAD
    sender.track.say(clip)
    sender.track.schedule_ahead()
    assert sender.entry.ahead == SPEECH_AHEAD, "each is a copy of the caller's own"


def test_a_caller_cannot_speak_two_utterances_at_once() -> None:
    track = _track((b"-",))
    track.say(make_clip())
    with pytest.raises(RuntimeError, match="already speaking"):
        track.say(make_clip())


def test_mute_returns_to_the_background_at_once() -> None:
    track = _track((b"-",))
    track.say(make_clip())
    track.take()
    track.mute()
    assert track.take() == (b"-", None, -1)


def test_a_track_without_background_is_rejected() -> None:
    with pytest.raises(ValueError, match="background"):
        _track(())


def test_a_sample_is_spoken_before_its_frame_is_sent() -> None:
    # As from a microphone: the frame goes out when its last sample has been spoken.
    clip = make_clip(speech_ms=1000, lead_ms=105)
    first = clip.speech_start_frame
    assert first == 5
    sent = 1_000 * MS
    # 5 ms into its frame of 20 ms: spoken 15 ms before the frame was sent.
    assert clip.moment_perf_ns(clip.rendered.speech_start_sample, first, sent) == sent - 15 * MS
