"""Frames are due on an absolute schedule: never early, never in a burst, and late ones keep it."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.engine.timing_wheel import CALLERS_TOGETHER, TICK_NS, TimingWheel, WheelEntry, WheelSlot

MS = 1_000_000
FRAME = 20 * MS
MOST_AHEAD = 16


def _accept_all(frame: bytes) -> int:
    return len(frame)


def _wheel(streams: int) -> tuple[TimingWheel[str], list[WheelEntry[str]]]:
    wheel: TimingWheel[str] = TimingWheel(0, FRAME)
    entries: list[WheelEntry[str]] = [WheelEntry(_accept_all) for _ in range(streams)]
    for number, entry in enumerate(entries):
        wheel.add(entry, f"caller {number}", 0)
    return wheel, entries


def _serve(wheel: TimingWheel[str], now: int) -> list[tuple[str, bytes | None, int]]:
    """Take the due rows as the engine does: each owner, its frame and its lateness in ns."""
    served: list[tuple[str, bytes | None, int]] = []
    for slot in wheel.due(now):
        late = now - slot.due_perf_ns
        served += [(owner, frame, late) for owner, _, frame, _ in slot.take_row(now)]
    return served


def _slot_of(entry: WheelEntry[str]) -> WheelSlot[str]:
    assert entry.slot is not None
    return entry.slot


def test_a_stream_is_due_once_a_frame_and_a_late_row_keeps_the_schedule() -> None:
    wheel, (entry,) = _wheel(1)
    due = _slot_of(entry).due_perf_ns
    assert _serve(wheel, due - 1) == []
    assert _serve(wheel, due + 7) == [("caller 0", None, 7)]
    assert _serve(wheel, due + FRAME + 13 * MS) == [("caller 0", None, 13 * MS)]
    assert _serve(wheel, due + 2 * FRAME) == [("caller 0", None, 0)]


def test_a_row_is_never_taken_early() -> None:
    _, (entry,) = _wheel(1)
    with pytest.raises(ValueError, match="1 ns early"):
        _slot_of(entry).take_row(_slot_of(entry).due_perf_ns - 1)


def test_many_callers_are_spread_over_the_ticks_of_a_frame() -> None:
    wheel, entries = _wheel(20 * CALLERS_TOGETHER)
    moments = Counter(_slot_of(entry).due_perf_ns % FRAME // TICK_NS for entry in entries)
    assert moments == dict.fromkeys(range(20), CALLERS_TOGETHER)
    assert len(wheel) == 20 * CALLERS_TOGETHER


@pytest.mark.parametrize("callers", [10, 10 * CALLERS_TOGETHER])
def test_fewer_callers_are_spread_over_every_second_tick(callers: int) -> None:
    wheel, entries = _wheel(callers)
    moments = Counter(_slot_of(entry).due_perf_ns % FRAME // TICK_NS for entry in entries)
    assert moments == dict.fromkeys(range(0, 20, 2), callers // 10)
    assert wheel.spacing_ticks == 2


def test_one_caller_more_needs_every_tick_until_it_leaves() -> None:
    wheel, entries = _wheel(10 * CALLERS_TOGETHER + 1)
    assert wheel.spacing_ticks == 1
    assert _slot_of(entries[-1]).due_perf_ns // TICK_NS % 2 == 1
    wheel.remove(entries[-1])
    assert wheel.spacing_ticks == 2
    wheel.remove(entries[0])
    wheel.add(entries[-1], "again", 0)
    assert wheel.spacing_ticks == 2, "there was room"


def test_a_frame_of_an_odd_number_of_ticks_uses_them_all() -> None:
    wheel: TimingWheel[str] = TimingWheel(0, 5 * MS)
    entries: list[WheelEntry[str]] = [WheelEntry(_accept_all) for _ in range(5)]
    for entry in entries:
        wheel.add(entry, "caller", 0)
    assert sorted(_slot_of(entry).due_perf_ns % (5 * MS) // TICK_NS for entry in entries) == [0, 1, 2, 3, 4]
    assert wheel.spacing_ticks == 1


COMING_AND_GOING = st.lists(st.tuples(st.booleans(), st.integers(0, 400)), max_size=12)


@pytest.mark.slow
@given(COMING_AND_GOING)
def test_no_slot_is_due_between_two_ticks_of_the_spacing(changes: list[tuple[bool, int]]) -> None:
    wheel: TimingWheel[str] = TimingWheel(0, FRAME)
    present: list[WheelEntry[str]] = []
    now = 0
    for joins, count in changes:
        for _ in range(count if joins else min(count, len(present))):
            if joins:
                present.append(WheelEntry(_accept_all))
                wheel.add(present[-1], "caller", now)
            else:
                wheel.remove(present.pop(len(present) // 2))
        shares = Counter(_slot_of(entry).due_perf_ns // TICK_NS % wheel.spacing_ticks for entry in present)
        assert set(shares) <= {0}
        # On time, nothing is ever late by more than the tick is.
        for _ in range(40):
            now += wheel.spacing_ticks * TICK_NS - now % (wheel.spacing_ticks * TICK_NS)
            assert all(late < 2 * TICK_NS for _, _, late in _serve(wheel, now))


def test_a_new_stream_is_due_within_one_frame_however_long_the_wheel_was_empty() -> None:
    wheel: TimingWheel[str] = TimingWheel(0, FRAME)
    now = 1000 * FRAME + 3 * MS + 5
    assert _serve(wheel, now) == []
    entry: WheelEntry[str] = WheelEntry(_accept_all)
    wheel.add(entry, "caller", now)
    assert now < _slot_of(entry).due_perf_ns <= now + FRAME
    assert entry.joined_perf_ns == now


@given(st.lists(st.integers(min_value=0, max_value=60 * MS), min_size=1, max_size=60), st.integers(1, 30))
def test_frames_are_never_early_lost_or_in_bursts_whatever_the_loop_does(steps: list[int], count: int) -> None:
    wheel, entries = _wheel(count)
    first_due = {f"caller {number}": _slot_of(entry).due_perf_ns for number, entry in enumerate(entries)}
    sent = dict.fromkeys(first_due, 0)
    now = 0
    for step in [*steps, *[TICK_NS] * 200]:
        now += step
        served = [caller for caller, _, late in _serve(wheel, now) if late >= 0]
        assert len(served) == len(set(served)), "at most one frame of a stream in one tick"
        for each in served:
            sent[each] += 1
    # After 200 regular ticks all have caught up: each has sent exactly what is due.
    assert sent == {caller: (now - due) // FRAME + 1 for caller, due in first_due.items()}


def test_after_a_stall_a_stream_catches_up_one_frame_per_tick() -> None:
    wheel, (entry,) = _wheel(1)
    stalled_until = _slot_of(entry).due_perf_ns + 4 * FRAME
    lateness = []
    for tick in range(6):
        lateness += [late for _, _, late in _serve(wheel, stalled_until + tick * TICK_NS)]
    assert lateness == [80 * MS, 61 * MS, 42 * MS, 23 * MS, 4 * MS]


def test_a_removed_stream_is_not_served() -> None:
    wheel, (first, _) = _wheel(2)
    wheel.remove(first)
    wheel.remove(first)
    assert [caller for caller, _, _ in _serve(wheel, FRAME + 5 * MS)] == ["caller 1"]


def test_a_stream_removed_while_its_row_is_served_is_not_served_again() -> None:
    wheel, (entry,) = _wheel(1)
    late = _slot_of(entry).due_perf_ns + 2 * FRAME
    for slot in wheel.due(late):
        for _ in slot.take_row(late):
            wheel.remove(entry)
    assert _serve(wheel, late + TICK_NS) == []


def test_streams_that_leave_or_join_while_a_row_is_sent_do_not_change_that_row() -> None:
    slot: WheelSlot[str] = WheelSlot(0, FRAME)
    entries: dict[str, WheelEntry[str]] = {name: WheelEntry(_accept_all) for name in ("a", "b", "c", "late")}
    for name in ("a", "b", "c"):
        slot.add(entries[name], name, 0)
        entries[name].schedule([f"{name}1".encode(), f"{name}2".encode()])
        entries[name].count([])
    row: list[tuple[str, bytes | None]] = []
    for owner, _, frame, counted in slot.take_row(0):
        assert counted is not None
        row.append((owner, frame))
        if owner == "a":
            slot.add(entries["late"], "late", 0)
            slot.remove(entries["a"])
            slot.remove(entries["b"])
    assert row == [("a", b"a1"), ("b", b"b1"), ("c", b"c1")]
    assert {owner: frame for owner, _, frame, _ in slot.take_row(FRAME)} == {"c": b"c2", "late": None}


def test_a_frame_that_is_not_a_whole_number_of_ticks_is_rejected() -> None:
    with pytest.raises(ValueError, match="whole number"):
        TimingWheel(0, 20 * MS + 1)


# What entries of one slot may do between rows: schedule frames, clear them, leave, join.
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["schedule", "clear", "leave", "join", "row"]), st.integers(0, 4), st.integers(0, MOST_AHEAD)
    ),
    max_size=60,
)


@given(MOVES)
def test_each_stream_gets_its_scheduled_frames_in_order_while_others_come_and_go(
    moves: list[tuple[str, int, int]],
) -> None:
    slot: WheelSlot[str] = WheelSlot(0, FRAME)
    present: list[tuple[str, WheelEntry[str]]] = []
    wanted: dict[str, list[bytes]] = {}
    for made, (what, who, count) in enumerate([*moves, *[("row", 0, 0)] * (MOST_AHEAD + 1)]):
        name, entry = present[who % len(present)] if present else ("", None)
        if what == "join":
            name, entry = f"caller {made}", WheelEntry[str](_accept_all)
            slot.add(entry, name, 0)
            present.append((name, entry))
            wanted[name] = []
        elif what == "schedule" and entry is not None and not entry.ahead:
            frames = [f"frame {made} {number}".encode() for number in range(count)]
            entry.taken()
            entry.schedule(frames)
            wanted[name] = frames
        elif what == "clear" and entry is not None:
            entry.clear()
            wanted[name] = []
        elif what == "leave" and entry is not None:
            slot.remove(entry)
            present.remove((name, entry))
            del wanted[name]
        elif what == "row":
            row = {owner: frame for owner, _, frame, _ in slot.take_row(slot.due_perf_ns)}
            assert row == {owner: frames[0] if frames else None for owner, frames in wanted.items()}
            wanted = {owner: frames[1:] for owner, frames in wanted.items()}
        assert {owner: entry.ahead for owner, entry in present} == {o: len(frames) for o, frames in wanted.items()}


def test_taken_frames_are_reported_once() -> None:
    slot: WheelSlot[str] = WheelSlot(0, FRAME)
    entry: WheelEntry[str] = WheelEntry(_accept_all)
    slot.add(entry, "caller", 0)
    entry.schedule([b"a", b"b", b"c"])
    list(slot.take_row(slot.due_perf_ns))
    assert (entry.taken(), entry.taken(), entry.ahead) == (1, 0, 2)
    list(slot.take_row(slot.due_perf_ns))
    entry.clear()
    assert (entry.taken(), entry.ahead) == (0, 0), "clearing also forgets which frames were taken"


def test_where_lateness_is_noted_applies_to_the_rows_that_follow() -> None:
    slot: WheelSlot[str] = WheelSlot(0, FRAME)
    one: WheelEntry[str] = WheelEntry(_accept_all)
    other: WheelEntry[str] = WheelEntry(_accept_all)
    slot.add(one, "one", 0)
    slot.add(other, "other", 0)
    lateness_ns: list[int] = []
    other.count(lateness_ns)
    assert [counted for *_, counted in slot.take_row(slot.due_perf_ns)] == [None, lateness_ns]
    slot.remove(one)
    assert [counted for *_, counted in slot.take_row(slot.due_perf_ns)] == [lateness_ns]
    other.count(None)
    assert [counted for *_, counted in slot.take_row(slot.due_perf_ns)] == [None]


def test_without_a_slot_nothing_is_scheduled() -> None:
    entry: WheelEntry[str] = WheelEntry(_accept_all)
    entry.schedule([b"a"])
    entry.count([])
    entry.clear()
    assert (entry.ahead, entry.taken()) == (0, 0)
