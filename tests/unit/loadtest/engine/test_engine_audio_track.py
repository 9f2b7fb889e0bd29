"""Reports to a call about its sent frames, in the order of sending."""

from types import SimpleNamespace
from typing import Any

import pytest

from loadtest.conversation.evidence import Evidence
from loadtest.engine.audio_track import AudioTrack
from loadtest.engine.pacer import OfferedFrame
from tests.unit.loadtest.conversation.world import MS, make_clip

FRAME = 20_000_000


class FakeStream:
    """Stands in for a stream of frames: each frame is as late as its number says, in µs."""

    def __init__(self) -> None:
        self.sent, self.is_saying, self.held_up, self.waiting_bytes = 0, False, 0, 0
        self.waits_since_perf_ns: int | None = None
        self.start: OfferedFrame | None = None
        self.end: OfferedFrame | None = None
        self.blocked, self.counted_from = 0, -1

    def begin(self, background: Any, frame_ns: int, now_perf_ns: int) -> int:
        return now_perf_ns

    def overdue(self, now_perf_ns: int) -> int:
        return now_perf_ns // FRAME

    def say(self, clip: Any, after: int) -> int:
        self.is_saying, self.start, self.end = True, None, None
        return self.sent + after

    def mute(self) -> int:
        self.is_saying = False
        return self.sent

    def offer(self, number: int) -> OfferedFrame:
        """A frame as the thread notes it."""
        self.sent = number + 1
        due = number * FRAME
        return OfferedFrame(number, due, due + 1000 * number, due + 1000 * number + 10, 2, 7)

    def speech(self) -> tuple[OfferedFrame | None, OfferedFrame | None]:
        return self.start, self.end

    def lateness_ns(self, first: int, end: int) -> list[int]:
        return [1000 * number for number in range(max(first, end - 1024), end)]

    def count_from(self, number: int | None, *, counts: bool) -> int:
        self.counted_from = (self.sent if number is None else number) if counts else -1
        return self.sent if number is None else number

    def blocked_ns(self, now_perf_ns: int | None) -> int:
        return self.blocked if now_perf_ns is None else self.blocked + now_perf_ns


@pytest.fixture
def paced() -> FakeStream:
    return FakeStream()


@pytest.fixture
def track(paced: FakeStream) -> AudioTrack:
    made: Any = paced
    track = AudioTrack()
    track.begin(made, (b"silence",), FRAME, 0)
    return track


def clip() -> Any:
    return SimpleNamespace(frames=(b"ab",) * 9, speech_start_frame=2, speech_end_frame=6)


def test_speech_is_taken_once_and_not_before_its_moment(track: AudioTrack, paced: FakeStream) -> None:
    track.say(clip(), 3 * FRAME)
    assert track.clip_started_frame == 3
    assert (track.awaits_marks, track.take_marks(10**18), track.in_speech) == (True, [], False)
    paced.start, paced.end = paced.offer(5), paced.offer(9)
    assert track.take_marks(5 * FRAME) == [], "something that came before the speech comes first"
    (start,) = track.take_marks(9 * FRAME)
    assert (start.is_start, start.frame.number, start.frame.frame_bytes) == (True, 5, 2)
    assert (start.frame.offered_perf_ns, start.frame.gone_perf_ns) == (5 * FRAME + 5000, 5 * FRAME + 5010)
    assert track.in_speech
    (end,) = track.take_marks(10 * FRAME)
    assert (end.is_start, end.frame.number, end.frame.unsent_bytes) == (False, 9, 7)
    assert not track.awaits_marks
    track.mute()
    assert not track.in_speech


def test_second_utterance_at_a_time_is_refused(track: AudioTrack) -> None:
    track.say(clip(), 0)
    with pytest.raises(RuntimeError):
        track.say(clip(), 0)
    track.mute()
    assert not track.awaits_marks
    track.say(clip(), 0)


def test_turn_gets_lateness_of_each_of_its_frames_once(track: AudioTrack, paced: FakeStream) -> None:
    first, second = Evidence(), Evidence()
    paced.offer(11)
    track.count(first, 5)
    assert paced.counted_from == 5
    track.give_evidence(8)
    assert first.pacing.lateness_ns == [5000, 6000, 7000]
    track.count(first)
    track.give_evidence()
    assert first.pacing.lateness_ns == [1000 * number for number in range(5, 12)]
    paced.offer(12)
    paced.blocked = 44
    track.count(second)
    assert first.pacing.lateness_ns[-1] == 12_000
    assert (first.blocked_worst_ns, second.blocked_worst_ns) == (44, 0)
    paced.offer(13)
    assert track.counts_for(second)
    track.count(None)
    assert second.pacing.lateness_ns == [13_000]
    paced.offer(20)
    track.give_evidence()
    assert second.pacing.lateness_ns == [13_000]


def test_turn_with_unknown_frames_is_as_late_as_worst_known(track: AudioTrack, paced: FakeStream) -> None:
    evidence = Evidence()
    track.count(evidence, 0)
    paced.offer(2999)
    track.give_evidence(now_perf_ns=9)
    assert len(evidence.pacing.lateness_ns) == 3000
    assert set(evidence.pacing.lateness_ns[:1976]) == {2_999_000}
    assert evidence.blocked_worst_ns == 9


def test_each_frame_that_waits_is_noted_once(track: AudioTrack, paced: FakeStream) -> None:
    noted: list[int] = []
    paced.held_up, paced.waiting_bytes = 2, 500
    track.note_held_up(noted.append)
    track.note_held_up(noted.append)
    paced.held_up = 3
    track.note_held_up(noted.append)
    assert noted == [500] * 3


def test_a_sample_is_spoken_before_its_frame_is_sent() -> None:
    # As from a microphone: the frame goes out when its last sample has been spoken.
    clip = make_clip(speech_ms=1000, lead_ms=105)
    first = clip.speech_start_frame
    assert first == 5
    sent = 1_000 * MS
    # 5 ms into its frame of 20 ms: spoken 15 ms before the frame was sent.
    assert clip.moment_perf_ns(clip.rendered.speech_start_sample, first, sent) == sent - 15 * MS
