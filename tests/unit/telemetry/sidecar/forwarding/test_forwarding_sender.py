"""Every request of a queue is taken, refused or dropped, and counted as what it was."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.sidecar.forwarding.backoff import MAX_S, Backoff
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.memory_queue import MemoryQueue
from telemetry.sidecar.forwarding.queued import QueuedRequest
from telemetry.sidecar.forwarding.sender import GATHER_S, QueueSender
from telemetry.sidecar.forwarding.tally import Tally
from telemetry.sidecar.forwarding.upstream import PostResult
from telemetry.sidecar.signals import Signal

DESTINATION = Destination("tempo", "http://127.0.0.1:1", "keep", in_memory=True, max_age_ns=100 * 10**9)
TAKEN = PostResult("taken")
REFUSED = PostResult("refused", "HTTP status 400")
DOUBTFUL = PostResult("failed", "HTTP status 500", is_doubtful=True)


class Scripted:
    """An upstream that replies by a script, then takes everything; time passes only in pauses."""

    def __init__(
        self,
        replies: Sequence[PostResult] = (),
        refused: frozenset[bytes] = frozenset(),
        refusal: PostResult = REFUSED,
    ) -> None:
        self.now_s = 1_000.0
        self.tally = Tally()
        self.queue = MemoryQueue(DESTINATION, self.tally, wall_clock_ns=lambda: round(self.now_s * 1e9))
        self.posts: list[tuple[Signal, list[bytes]]] = []
        self.taken: list[bytes] = []
        self.pauses: list[float] = []
        self._replies = list(replies)
        self._refused = refused
        self._refusal = refusal
        backoff = Backoff(lambda _low, high: high)
        self.sender = QueueSender("tempo", self.queue, self._post, self.tally, backoff=backoff, pause=self._pause)

    def add(self, *bodies: bytes, signal: Signal = "traces") -> None:
        for body in bodies:
            self.queue.add(QueuedRequest(signal, body, len(body)))

    def run(self) -> None:
        self.sender.drain()
        asyncio.run(asyncio.wait_for(self.sender.run(), 60))

    async def _post(self, signal: Signal, bodies: Sequence[bytes]) -> PostResult:
        self.posts.append((signal, list(bodies)))
        if self._replies:
            reply = self._replies.pop(0)
        else:
            reply = self._refusal if self._refused.intersection(bodies) else TAKEN
        if reply.outcome == "taken":
            self.taken += bodies
        return reply

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


class Lasting(Scripted):
    """As above, but what fails is tried again: it drains only once it works. `later` comes during the pauses."""

    later: Sequence[bytes] = ()

    async def _pause(self, seconds: float) -> None:
        await super()._pause(seconds)
        self.add(*self.later[:1])
        self.later = self.later[1:]

    def run(self) -> None:
        async def until_empty() -> None:
            running = asyncio.create_task(self.sender.run())
            while self.queue.backlog().size_bytes:  # noqa: ASYNC110 - the queue belongs to threads, too
                await asyncio.sleep(0)
            self.sender.drain()
            await running

        asyncio.run(asyncio.wait_for(until_empty(), 60))


def test_what_waits_is_sent_together_by_signal() -> None:
    upstream = Scripted()
    upstream.add(b"1", b"2")
    upstream.add(b"3", signal="metrics")
    upstream.add(b"4")
    upstream.run()
    assert upstream.posts == [("traces", [b"1", b"2", b"4"]), ("metrics", [b"3"])]
    assert upstream.tally == Tally(forwarded_requests=4, forwarded_bytes=4)


@given(
    bodies=st.lists(st.binary(min_size=1, max_size=3), min_size=1, max_size=30, unique=True),
    chosen=st.sets(st.integers(0, 29)),
)
@settings(deadline=None)
def test_what_is_refused_is_found_and_left_out_alone(bodies: list[bytes], chosen: set[int]) -> None:
    refused = frozenset(body for index, body in enumerate(bodies) if index in chosen)
    upstream = Scripted(refused=refused)
    upstream.add(*bodies)
    upstream.run()
    assert upstream.taken == [body for body in bodies if body not in refused]
    assert upstream.tally.refused_requests == len(refused)
    assert upstream.tally.forwarded_requests == len(bodies) - len(refused)
    assert upstream.queue.backlog().size_bytes == 0


@pytest.mark.parametrize("place", [0, 2, 6])
def test_a_request_at_which_the_server_fails_is_left_out_once_others_are_taken(place: int) -> None:
    bodies = [bytes([number]) for number in range(7)]
    upstream = Lasting(refused=frozenset([bodies[place]]), refusal=DOUBTFUL)
    upstream.add(*bodies)
    upstream.run()
    assert sorted({*upstream.taken}) == [body for body in bodies if body != bodies[place]]
    assert len(upstream.taken) <= 7, "one may be sent again to know whether the server works"
    assert (upstream.tally.refused_requests, upstream.tally.forwarded_requests) == (1, 6)
    assert sum(upstream.pauses) < 100


def test_a_single_request_at_which_the_server_fails_is_compared_with_those_that_come_later() -> None:
    upstream = Lasting(refused=frozenset([b"1"]), refusal=DOUBTFUL)
    upstream.add(b"1")
    upstream.later = [b"2", b"3"]
    upstream.run()
    assert upstream.taken == [b"2", b"3"]
    assert upstream.tally.refused_requests == 1


@pytest.mark.parametrize("failures", [1, 3, 5, 6])
def test_a_server_that_fails_at_everything_for_a_while_costs_no_request(failures: int) -> None:
    upstream = Lasting([TAKEN, *[DOUBTFUL] * failures])
    upstream.add(b"0")
    upstream.add(b"1", b"2", b"3", signal="metrics")
    upstream.run()
    assert {b"0", b"1", b"2", b"3"} == set(upstream.taken)
    assert upstream.tally.refused_requests == 0
    assert upstream.tally.dropped_requests == {}


def test_a_failure_is_tried_again_ever_later_and_as_late_as_asked(caplog: pytest.LogCaptureFixture) -> None:
    failed = PostResult("failed", "HTTP status 503")
    upstream = Lasting([failed, failed, replace(failed, retry_after_s=30.0), failed])
    upstream.add(b"1", b"2")
    with caplog.at_level(logging.INFO):
        upstream.run()
    assert [pause for pause in upstream.pauses if pause != GATHER_S] == [1.0, 2.0, 30.0, 8.0]
    assert upstream.taken == [b"1", b"2"]
    assert upstream.tally.failed_attempts == 4
    assert upstream.sender.failure is None
    assert [record.message for record in caplog.records] == [
        "forwarding to tempo fails, what is received waits: HTTP status 503",
        "forwarding to tempo works again",
    ]


def test_the_wait_has_an_upper_bound_and_begins_anew() -> None:
    backoff = Backoff(lambda _low, high: high)
    assert [backoff.next_s() for _ in range(9)] == [1, 2, 4, 8, 16, 32, MAX_S, MAX_S, MAX_S]
    backoff.reset()
    assert backoff.next_s() == 1
    assert Backoff(lambda low, _high: low).next_s() == 0.5


def test_after_a_failure_in_the_middle_only_what_is_left_is_sent_again() -> None:
    upstream = Lasting([TAKEN, PostResult("failed", "HTTP status 502")])
    upstream.add(b"1")
    upstream.add(b"2", signal="metrics")
    upstream.run()
    assert upstream.posts == [("traces", [b"1"]), ("metrics", [b"2"]), ("metrics", [b"2"])]


def test_what_waits_for_too_long_is_dropped_and_counted() -> None:
    upstream = Lasting([PostResult("failed", "no answer within 10 s")] * 8)
    upstream.add(b"12", b"3")
    upstream.run()
    assert sum(upstream.pauses) > 100
    assert upstream.taken == []
    assert upstream.tally.dropped_requests == {"age": 2}
    assert upstream.tally.dropped_bytes == 3
    assert upstream.queue.backlog().size_bytes == 0


def test_rejected_items_of_a_partial_success_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    upstream = Scripted([PostResult("taken", "too old", 7)])
    upstream.add(b"1")
    upstream.run()
    assert (upstream.tally.forwarded_requests, upstream.tally.rejected_items) == (1, 7)
    assert "it rejected 7 items of traces: too old" in caplog.text


def test_the_end_does_not_wait_for_a_destination_that_takes_nothing() -> None:
    upstream = Scripted([PostResult("failed", "Connection refused")] * 1000)
    upstream.add(b"1")
    upstream.run()
    assert upstream.pauses == []
    assert upstream.sender.failure == "Connection refused"
    assert upstream.queue.backlog().size_bytes == 1, "it is still there"
