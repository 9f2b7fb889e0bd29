"""The queue of a destination holds its limits, and every request is in exactly one place."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.sidecar.forwarding.bounded_queue import STRIKES_MAX, BoundedQueue, DestinationState, QueuedRequest
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.signals import Signal

DESTINATION = Destination("tempo", "http://127.0.0.1:1", "keep", queue_bytes=1000, queue_items=100, max_age_s=100.0)


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def bodies(requests: list[QueuedRequest]) -> list[bytes]:
    return [request.body for request in requests]


def settled(state: DestinationState) -> int:
    return state.forwarded_requests + state.refused_requests.total() + state.dropped_requests.total()


def test_oldest_are_dropped_above_byte_and_item_limits() -> None:
    queue = BoundedQueue(DESTINATION)
    for number in range(30):
        queue.add("traces", bytes([number]) * 100, 1)
        assert queue.state().backlog_bytes <= 1000
    assert bodies(queue.take("traces", 99, 1 << 20)) == [bytes([number]) * 100 for number in range(20, 30)]
    queue.put_back("traces")
    queue.add("metrics", b"m", 95)
    state = queue.state()
    assert (state.backlog_items, state.backlog_requests) == (100, 6)
    assert state.dropped_requests == {"size": 25}
    assert state.lost_items == 25


def test_request_larger_than_queue_is_kept_until_the_next() -> None:
    queue = BoundedQueue(DESTINATION)
    queue.add("traces", b"1" * 5000, 500)
    assert queue.state().backlog_requests == 1
    queue.add("traces", b"2", 1)
    assert bodies(queue.take("traces", 9, 9)) == [b"2"]
    assert queue.state().lost_items == 500


def test_requests_being_sent_count_as_waiting_and_are_kept() -> None:
    clock = Clock()
    queue = BoundedQueue(DESTINATION, clock_s=clock)
    for number in range(10):
        queue.add("traces", bytes([number]) * 100, 1)
    assert bodies(queue.take("traces", 99, 250)) == [b"\0" * 100, b"\1" * 100]
    clock.now_s += 7
    queue.add("traces", b"x" * 100, 1)
    assert queue.state().dropped_requests == {"size": 1}
    assert queue.state().backlog_s == 7.0
    queue.forwarded("traces", 0)
    assert bodies(queue.take("traces", 99, 1 << 20))[:2] == [b"\3" * 100, b"\4" * 100]


def test_a_batch_has_one_request_or_at_most_so_many_octets() -> None:
    queue = BoundedQueue(DESTINATION)
    for size in (300, 50, 60):
        queue.add("traces", b"x" * size, 1)
    sizes: list[list[int]] = []
    while batch := queue.take("traces", 99, 100):
        sizes.append([len(body) for body in bodies(batch)])
        queue.forwarded("traces", 0)
    assert sizes == [[300], [50], [60]]


def test_expired_request_is_dropped_at_any_place() -> None:
    clock = Clock()
    queue = BoundedQueue(DESTINATION, clock_s=clock)
    queue.add("traces", b"1", 2)
    queue.add("metrics", b"2", 3)
    clock.now_s += 60
    queue.add("traces", b"3", 4)
    clock.now_s += 41
    assert bodies(queue.take("traces", 9, 9)) == [b"3"]
    assert queue.state().dropped_requests == {"age": 1}
    queue.expire()
    assert queue.state().dropped_requests == {"age": 2}
    assert queue.state().lost_items == 5
    assert queue.state().backlog_s == 41.0


def test_nothing_waits_after_close_and_later_ones_are_counted() -> None:
    queue = BoundedQueue(DESTINATION)
    for body in (b"1", b"2"):
        queue.add("traces", body, 1)
    queue.take("traces", 1, 9)
    queue.close()
    queue.add("metrics", b"3", 1)
    state = queue.state()
    assert (state.backlog_requests, state.backlog_bytes, state.backlog_items) == (0, 0, 0)
    assert state.dropped_requests == {"stop": 3}


def test_request_is_given_up_only_after_others_were_forwarded() -> None:
    queue = BoundedQueue(DESTINATION)
    queue.add("traces", b"poison", 1)
    for _ in range(20):
        queue.take("traces", 1, 99)
        assert queue.move_last("traces"), "nothing else was taken: it may be the server"
    for taken in range(1, STRIKES_MAX):
        queue.add("traces", b"other", 1)
        assert bodies(queue.take("traces", 1, 99)) == [b"poison"]
        is_kept = queue.move_last("traces")
        assert bodies(queue.take("traces", 1, 99)) == [b"other"]
        queue.forwarded("traces", 0)
        assert is_kept
        assert queue.state().forwarded_requests == taken
    queue.take("traces", 1, 99)
    assert not queue.move_last("traces")
    queue.refused("traces", "HTTP status 500")
    assert queue.state().refused_requests == {"HTTP status 500": 1}


@pytest.mark.parametrize(("rejected", "counted"), [(3, 3), (999, 5)])
def test_no_more_items_are_rejected_than_were_sent(rejected: int, counted: int) -> None:
    queue = BoundedQueue(DESTINATION)
    queue.add("metrics", b"1", 5)
    queue.take("metrics", 9, 9)
    queue.forwarded("metrics", rejected)
    assert (queue.state().rejected_items, queue.state().lost_items) == (counted, counted)


STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(["traces", "metrics"]), st.integers(0, 600), st.integers(1, 70)),
    st.tuples(st.just("take"), st.sampled_from(["traces", "metrics"]), st.integers(1, 900), st.integers(1, 9)),
    st.tuples(
        st.sampled_from(["put_back", "forwarded", "refused", "wait", "expire"]),
        st.sampled_from(["traces", "metrics"]),
        st.integers(0, 60),
        st.just(1),
    ),
)


@given(steps=st.lists(STEPS, max_size=60))
@settings(deadline=None)
def test_every_request_is_counted_once_and_limits_hold(
    steps: list[tuple[str, Signal, int, int]],
) -> None:
    clock = Clock()
    queue = BoundedQueue(replace(DESTINATION, max_age_s=150.0), clock_s=clock)
    added = items = sending = largest = 0
    taken: dict[Signal, list[QueuedRequest]] = {"traces": [], "metrics": []}
    for what, signal, number, count in steps:
        if what == "add":
            queue.add(signal, b"x" * number, count)
            added, items, largest = added + 1, items + count, max(largest, number)
        elif what == "take" and not taken[signal]:
            taken[signal] = queue.take(signal, count, number)
        elif what == "wait":
            clock.now_s += number
        elif what == "expire":
            queue.expire()
        elif taken[signal]:
            if what == "put_back":
                queue.put_back(signal)
            elif what == "forwarded":
                queue.forwarded(signal, 0)
            elif what == "refused":
                queue.refused(signal, "HTTP status 400")
            else:
                continue
            taken[signal] = []
        state = queue.state()
        sending = sum(len(request.body) for batch in taken.values() for request in batch)
        assert state.backlog_requests + settled(state) == added
        assert state.backlog_bytes <= max(1000, sending + largest)
    queue.close()
    state = queue.state()
    assert (state.backlog_requests, state.backlog_bytes, state.backlog_items) == (0, 0, 0)
    assert settled(state) == added
    assert state.lost_items <= items
