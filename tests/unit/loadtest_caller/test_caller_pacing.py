"""Frames are due on an absolute schedule: never early, never in a burst, and late ones keep it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.caller.pacing import TICK_NS, FrameSchedule, Paced, Wheel

MS = 1_000_000
FRAME = 20 * MS


def test_a_frame_is_due_when_its_last_sample_has_been_spoken() -> None:
    schedule = FrameSchedule(1_000, FRAME)
    assert schedule.due_perf_ns == 1_000 + FRAME
    assert schedule.advance(1_000 + FRAME + 7) == 7
    assert schedule.due_perf_ns == 1_000 + 2 * FRAME


def test_a_late_frame_keeps_the_schedule() -> None:
    schedule = FrameSchedule(0, FRAME)
    assert schedule.advance(FRAME + 13 * MS) == 13 * MS
    assert schedule.advance(2 * FRAME) == 0


def test_a_frame_is_never_sent_early() -> None:
    with pytest.raises(ValueError, match="1 ns early"):
        FrameSchedule(0, FRAME).advance(FRAME - 1)


def _wheel(streams: int) -> tuple[Wheel[Paced], list[Paced]]:
    wheel: Wheel[Paced] = Wheel(0, FRAME)
    made = []
    for _ in range(streams):
        stream = Paced(FrameSchedule(wheel.start_of_emptiest_slot(0), FRAME))
        wheel.add(stream)
        made.append(stream)
    return wheel, made


def test_callers_are_spread_over_the_ticks_of_a_frame() -> None:
    wheel, streams = _wheel(40)
    slots = [stream.slot for stream in streams]
    assert sorted(slots) == sorted([*range(20), *range(20)])
    assert len(wheel) == 40


@given(st.lists(st.integers(min_value=0, max_value=60 * MS), min_size=1, max_size=60), st.integers(1, 30))
def test_whatever_the_loop_does_frames_are_neither_early_nor_lost_nor_in_bursts(steps: list[int], count: int) -> None:
    wheel, streams = _wheel(count)
    now = 0
    for step in [*steps, *[TICK_NS] * 200]:
        now += step
        sent: list[Paced] = []
        for stream in wheel.due(now):
            assert stream.schedule.advance(now) >= 0
            sent.append(stream)
        assert len(sent) == len(set(map(id, sent))), "at most one frame of a stream in one tick"
    # After 200 quiet ticks all have caught up: each has sent exactly what is due.
    for stream in streams:
        assert stream.schedule.sent == (now - stream.schedule.start_perf_ns) // FRAME


def test_after_a_stall_a_stream_catches_up_one_frame_a_tick() -> None:
    wheel, (stream,) = _wheel(1)
    start = stream.schedule.start_perf_ns
    stalled_until = start + 5 * FRAME
    lateness = []
    for tick in range(6):
        now = stalled_until + tick * TICK_NS
        lateness += [due.schedule.advance(now) for due in wheel.due(now)]
    assert lateness == [80 * MS, 61 * MS, 42 * MS, 23 * MS, 4 * MS]


def test_a_removed_stream_is_not_served() -> None:
    wheel, (first, second) = _wheel(2)
    wheel.remove(first)
    wheel.remove(first)
    assert list(wheel.due(first.schedule.start_perf_ns + FRAME + 5 * MS)) == [second]


def test_a_stream_removed_while_its_tick_is_served_is_not_served_again() -> None:
    wheel, (stream,) = _wheel(1)
    late = stream.schedule.start_perf_ns + 3 * FRAME
    for due in wheel.due(late):
        due.schedule.advance(late)
        wheel.remove(due)
    assert list(wheel.due(late + TICK_NS)) == []


def test_a_frame_that_is_no_whole_number_of_ticks_is_refused() -> None:
    with pytest.raises(ValueError, match="whole number"):
        Wheel(0, 20 * MS + 1)
