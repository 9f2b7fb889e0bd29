"""A sender's reaction to each answer: every request is taken, refused, or waits."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.sidecar.forwarding.bounded_queue import BoundedQueue
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.sending import BACKOFF_MAX_S, DRAIN_S, GATHER_S, PostResult, SignalSender
from telemetry.sidecar.signals import Signal

DESTINATION = Destination("tempo", "http://127.0.0.1:1", "keep", max_age_s=100.0)
TAKEN = PostResult("taken")
REFUSED = PostResult("refused", "HTTP status 400")
DOUBTFUL = PostResult("doubtful", "HTTP status 500")
FAILED = PostResult("failed", "HTTP status 503")


class Scripted:
    """A destination that answers by a script, then takes everything but what is `refused`; time passes in pauses only.

    It is stopped once nothing waits, or before the first request with `stops`. `later` comes during the pauses.
    """

    def __init__(
        self,
        results: Sequence[PostResult] = (),
        refused: frozenset[bytes] = frozenset(),
        refusal: PostResult = REFUSED,
        *,
        stops: bool = False,
    ) -> None:
        self.now_s = 1_000.0
        self.queue = BoundedQueue(DESTINATION, clock_s=lambda: self.now_s)
        self.posts: list[list[bytes]] = []
        self.taken: list[bytes] = []
        self.pauses: list[float] = []
        self.later: list[bytes] = []
        self._results = list(results)
        self._refused = refused
        self._refusal = refusal
        self._stops = stops
        self._stopping = threading.Event()

    def run(self, *bodies: bytes) -> "Scripted":
        for body in bodies:
            self.queue.add("traces", body, 1)
        if self._stops:
            self._stopping.set()
        sender = SignalSender(
            "tempo",
            "traces",
            self.queue,
            self.post,
            self._stopping,
            pause=self._pause,
            uniform=lambda _low, high: high,
        )
        sender.run()
        return self

    def post(self, _signal: Signal, bodies: Sequence[bytes]) -> PostResult:
        self.posts.append(list(bodies))
        if self._results:
            result = self._results.pop(0)
        else:
            result = self._refusal if self._refused.intersection(bodies) else TAKEN
        if result.outcome == "taken":
            self.taken += bodies
        return result

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds
        if self.later:
            self.queue.add("traces", self.later.pop(0), 1)
        elif not self.queue.state().backlog_requests:
            self._stopping.set()

    @property
    def backoff(self) -> list[float]:
        return [pause for pause in self.pauses if pause not in (0.0, GATHER_S)]


@given(
    bodies=st.lists(st.binary(min_size=1, max_size=3), min_size=1, max_size=30, unique=True),
    chosen=st.sets(st.integers(0, 29)),
)
@settings(deadline=None)
def test_refused_request_is_isolated_and_skipped_alone(bodies: list[bytes], chosen: set[int]) -> None:
    refused = frozenset(body for index, body in enumerate(bodies) if index in chosen)
    upstream = Scripted(refused=refused).run(*bodies)
    state = upstream.queue.state()
    assert upstream.taken == [body for body in bodies if body not in refused]
    assert state.refused_requests.get("HTTP status 400", 0) == len(refused)
    assert state.forwarded_requests == len(bodies) - len(refused)
    assert upstream.backoff == [], "a refusal of one is no reason to wait"


def test_a_destination_that_refuses_everything_is_not_flooded() -> None:
    bodies = [bytes([number]) for number in range(100)]
    upstream = Scripted(refused=frozenset(bodies)).run(*bodies)
    assert upstream.queue.state().refused_requests == {"HTTP status 400": 100}
    assert upstream.pauses.count(GATHER_S) >= 90


@pytest.mark.parametrize("place", [0, 2, 6])
def test_request_that_fails_server_is_skipped_once_others_pass(place: int) -> None:
    bodies = [bytes([number]) for number in range(7)]
    upstream = Scripted(refused=frozenset([bodies[place]]), refusal=DOUBTFUL)
    later = [b"later %d" % number for number in range(12)]
    upstream.later = [*later]
    upstream.run(*bodies)
    assert sorted(upstream.taken) == sorted([*bodies[:place], *bodies[place + 1 :], *later])
    assert upstream.queue.state().refused_requests == {"HTTP status 500": 1}
    assert sum(upstream.pauses) < 60


@pytest.mark.parametrize("failures", [1, 3, 6])
def test_server_that_fails_everything_for_a_while_loses_nothing(failures: int) -> None:
    upstream = Scripted([TAKEN, *[DOUBTFUL] * failures])
    upstream.later = [b"1", b"2", b"3"]
    upstream.run(b"0")
    assert sorted(upstream.taken) == [b"0", b"1", b"2", b"3"]
    assert upstream.queue.state().lost_items == 0


def test_failure_is_retried_with_growing_delay_and_as_requested(caplog: pytest.LogCaptureFixture) -> None:
    upstream = Scripted([FAILED, FAILED, replace(FAILED, retry_after_s=30.0), FAILED])
    with caplog.at_level(logging.INFO):
        upstream.run(b"1", b"2")
    assert upstream.backoff == [1.0, 2.0, 30.0, 8.0]
    assert upstream.posts == [[b"1", b"2"]] * 5
    assert upstream.queue.state().failed_attempts == 4
    assert upstream.queue.state().failures == {}
    assert [record.message for record in caplog.records] == [
        "forwarding traces to tempo fails, they wait: HTTP status 503",
        "forwarding traces to tempo works again",
    ]


def test_wait_has_upper_bound_and_requests_too_old_are_dropped() -> None:
    upstream = Scripted([FAILED] * 8).run(b"1", b"2")
    assert upstream.backoff == [1, 2, 4, 8, 16, 32, BACKOFF_MAX_S]
    assert upstream.queue.state().dropped_requests == {"age": 2}
    assert upstream.taken == []


def test_stop_sends_all_that_waits_and_retries_soon() -> None:
    upstream = Scripted([FAILED], stops=True).run(b"1", b"2")
    assert upstream.taken == [b"1", b"2"]
    assert upstream.pauses[0] == 1.0


def test_the_end_does_not_wait_for_what_would_come_after_it() -> None:
    upstream = Scripted([replace(FAILED, retry_after_s=DRAIN_S + 1)], stops=True).run(b"1")
    assert upstream.posts == [[b"1"]]
    assert upstream.pauses == []
    assert upstream.queue.state().backlog_requests == 1


def test_rejected_items_of_partial_success_are_counted() -> None:
    upstream = Scripted([PostResult("taken", message="too old", rejected_items=2)]).run(b"1", b"2", b"3")
    state = upstream.queue.state()
    assert (state.forwarded_requests, state.rejected_items, state.lost_items) == (3, 2, 2)
    assert state.refusal == "2 items of traces rejected (partial success): too old"


def test_an_error_of_the_sender_s_own_loses_nothing() -> None:
    class Broken(Scripted):
        def post(self, signal: Signal, bodies: Sequence[bytes]) -> PostResult:
            if not self.pauses:
                raise LookupError("hush")
            return super().post(signal, bodies)

    upstream = Broken().run(b"1")
    assert upstream.taken == [b"1"]
    assert upstream.backoff == [1.0]
