"""Frames that the hub sends: absolute deadlines, never early, never in a burst, and what is known of them."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.engine.hub_sender import HubSender, HubStream
from loadtest.engine.pacer import KEPT_FRAMES

MS = 1_000_000
FRAME = 20 * MS
BASE = 7_000_003


class Transport:
    """A transport that takes each frame in `sending_ns`, or lets it wait."""

    def __init__(self, hub: "Hub") -> None:
        self.hub = hub
        self.sent: list[tuple[bytes, int]] = []
        self.takes = True
        self.frame_bytes = 0
        self.outbox = SimpleNamespace(queued_bytes=0, drained_bytes=0, waiting_bytes=0)

    def send_frame(self, frame: bytes) -> bool:
        self.sent.append((frame, self.hub.now))
        self.hub.now += self.hub.sending_ns
        self.frame_bytes = len(frame)
        self.outbox.queued_bytes += 0 if self.takes else len(frame)
        return self.takes

    def unsent_bytes(self) -> int:
        return 3


class Hub:
    """A sender on a manual clock."""

    def __init__(self) -> None:
        self.now, self.sending_ns = BASE, 0
        self.errors: list[tuple[HubStream, Exception]] = []
        self.sender = HubSender(BASE, lambda: self.now, lambda *error: self.errors.append(error))

    def add(self, *background: bytes) -> tuple[HubStream, Transport]:
        transport = Transport(self)
        made: Any = transport
        stream = self.sender.add(made, FRAME)
        stream.begin(background or (b"a", b"b", b"c"), FRAME, self.now)
        return stream, transport

    def run(self, ticks: int) -> list[HubStream]:
        """Serve so many ticks, each on time unless the sending takes longer; return who had news."""
        streams: list[HubStream] = []
        for _ in range(ticks):
            self.now = max(self.now, self.now + MS - (self.now - BASE) % MS)
            streams += self.sender.collect(self.now)[0]
        return streams


def clip(frames: int, start: int, end: int) -> Any:
    return SimpleNamespace(
        frames=[b"%d" % number for number in range(frames)], speech_start_frame=start, speech_end_frame=end
    )


@given(st.lists(st.one_of(st.integers(1, 30).map(lambda ms: ms * MS), st.integers(1, 200 * MS)), max_size=60))
def test_frames_keep_schedule_and_are_neither_early_nor_bursty(pauses: list[int]) -> None:
    hub = Hub()
    stream, transport = hub.add()
    first_due = stream.due_perf_ns
    ticks = 0
    for pause in pauses:
        hub.now += pause
        hub.sender.collect(hub.now)
        ticks += 1
    moments = [moment for _, moment in transport.sent]
    assert all(moment >= first_due + number * FRAME for number, moment in enumerate(moments))
    assert all(before < after for before, after in pairwise(moments)), "one a tick"
    assert stream.due_perf_ns == first_due + len(moments) * FRAME
    assert len(moments) == ticks or stream.due_perf_ns > hub.now or len(set(moments)) == len(moments)
    assert [frame for frame, _ in transport.sent] == [b"abc"[number % 3 :][:1] for number in range(len(moments))]


@pytest.mark.parametrize(
    ("streams", "spacing", "together"),
    [(40, 2, {4}), (150, 2, {15}), (151, 1, {15, 1}), (600, 1, {30})],
)
def test_streams_are_spread_over_frame_and_places_are_reused(streams: int, spacing: int, together: set[int]) -> None:
    hub = Hub()
    added = [hub.add()[0] for _ in range(streams)]
    phases = [(stream.due_perf_ns - BASE) % FRAME for stream in added]
    assert {phases.count(phase) for phase in phases} == together
    assert {phase % (spacing * MS) for phase in phases} == {0}, "when there are ticks"
    assert hub.sender.spacing_ticks == spacing
    added[3].stop()
    added[3].stop()
    again = hub.add()[0]
    assert (again.due_perf_ns - BASE) % FRAME == phases[3]
    assert hub.sender.streams == streams
    added[-1].stop()
    if streams == 151:
        assert hub.sender.spacing_ticks == 2


def test_a_stream_that_fell_behind_catches_up_with_every_tick() -> None:
    hub = Hub()
    stream, transport = hub.add()
    hub.now = stream.due_perf_ns + 5 * FRAME
    for number in range(1, 6):
        hub.sender.collect(hub.now)
        assert (len(transport.sent), hub.sender.spacing_ticks) == (number, 1)
    hub.sender.collect(hub.now)
    assert (len(transport.sent), hub.sender.spacing_ticks) == (6, 2)


def test_frames_of_an_odd_length_need_every_tick() -> None:
    hub = Hub()
    hub.sender.add(Transport(hub), 25 * MS).begin([b"a"], 25 * MS, hub.now)  # type: ignore[arg-type]
    assert hub.sender.spacing_ticks == 1


def test_a_stopped_stream_sends_nothing() -> None:
    hub = Hub()
    (stream, transport), (_, other) = hub.add(), hub.add()
    hub.run(60)
    stream.stop()
    before = len(transport.sent)
    hub.run(60)
    assert (before, len(transport.sent), len(other.sent)) == (3, 3, 6)


def test_utterance_is_whole_after_overdue_frames_and_stamped() -> None:
    hub = Hub()
    stream, transport = hub.add()
    hub.run(20)
    hub.now += 190 * MS
    hub.sending_ns = 5
    overdue = stream.overdue(hub.now)
    assert overdue == (hub.now - stream.due_perf_ns) // FRAME + 1
    number = stream.say(clip(4, 1, 3), overdue)
    streams = hub.run(400)
    frames = [frame for frame, _ in transport.sent]
    assert frames[number : number + 4] == [b"0", b"1", b"2", b"3"]
    assert set(frames[:number] + frames[number + 4 :]) <= {b"a", b"b", b"c"}
    start, end = stream.speech()
    assert start is not None
    assert end is not None
    assert (start.number, end.number) == (number + 1, number + 3)
    assert start.offered_perf_ns == transport.sent[number + 1][1] == start.gone_perf_ns - 5
    assert (start.unsent_bytes, end.unsent_bytes, end.frame_bytes) == (None, 3, 1)
    assert end.due_perf_ns - start.due_perf_ns == 2 * FRAME
    assert streams == [stream] * 2, "once for each of the two"
    assert not stream.is_saying
    stream.say(clip(9, 0, 8), 0)
    hub.run(40)
    assert stream.mute() == len(transport.sent)
    hub.run(40)
    assert transport.sent[-1][0] in (b"a", b"b", b"c")


def test_the_lateness_of_each_frame_is_known_for_a_while() -> None:
    hub = Hub()
    hub.sending_ns = 700
    stream, _ = hub.add()
    streams = hub.run(20 * 5 * KEPT_FRAMES)
    assert stream.lateness_ns(stream.sent - 2, stream.sent) == [700, 700]
    assert KEPT_FRAMES <= len(stream.lateness_ns(0, stream.sent)) <= 3 * KEPT_FRAMES
    assert len(streams) >= 4, "a call hears of its frames before they are forgotten"


def test_stream_added_to_a_late_row_keeps_its_schedule() -> None:
    hub = Hub()
    first, *_ = [hub.add()[0] for _ in range(FRAME // (2 * MS))]
    hub.now += 90 * MS
    joined, transport = hub.add()
    assert (joined.phase, joined.due_perf_ns) == (first.phase, first.due_perf_ns + 4 * FRAME)
    first_due_perf_ns = joined.due_perf_ns
    hub.run(100)
    moments = [moment for _, moment in transport.sent]
    assert moments == [first_due_perf_ns + number * FRAME for number in range(len(moments))]
    assert (joined.due_perf_ns, first.sent - joined.sent) == (first.due_perf_ns, 4)


def test_a_deadline_is_reported_with_the_frame_that_is_sent_then() -> None:
    hub = Hub()
    stream, transport = hub.add()
    stream.set_deadline(stream.due_perf_ns + 1)
    assert hub.run(20) == []
    assert hub.run(20) == [stream]
    assert len(transport.sent) == 2


def test_waiting_frames_are_held_up_until_socket_accepts_them() -> None:
    hub = Hub()
    stream, transport = hub.add()
    hub.run(20)
    stream.count_from(2, counts=True)
    transport.takes = False
    assert hub.run(60) == [stream] * 3
    offered = [moment for _, moment in transport.sent[1:]]
    assert (stream.held_up, stream.waits_since_perf_ns) == (3, offered[0])
    assert stream.blocked_ns(None) == 0
    assert stream.blocked_ns(hub.now) == hub.now - offered[1], "the first that counts"
    transport.outbox.drained_bytes = 2
    stream.settle(hub.now)
    assert (stream.waits_since_perf_ns, stream.blocked_ns(None)) == (offered[2], hub.now - offered[1])
    stream.count_from(None, counts=False)
    transport.outbox.drained_bytes = 3
    stream.settle(hub.now + 1)
    assert (stream.waits_since_perf_ns, stream.blocked_ns(None)) == (None, 0)


def test_internal_error_of_one_stream_does_not_stop_others(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    (broken, transport), (_, sound) = hub.add(), hub.add()

    def fail(frame: bytes) -> bool:
        raise ValueError(frame)

    monkeypatch.setattr(transport, "send_frame", fail)
    hub.run(20)
    assert [(stream, str(error)) for stream, error in hub.errors] == [(broken, "b'a'")]
    assert len(sound.sent) == 1
