"""When a caller calls again: its own pause, what the endpoint asked for, and longer after each failed call."""

from typing import Any

import pytest
from locust.env import Environment

from loadtest.swarm import users
from loadtest.swarm.redial import RedialBackoff
from loadtest.swarm.users import VoiceUser
from telemetry.model.turns import Turn
from tests.fixtures_turns import client_turn

S = 1_000_000_000
GOOD = client_turn(0, connect_ns=5)


def failed(outcome: str = "error", kind: str | None = "tcp", code: str | None = None, **changes: object) -> Turn:
    cause = {"failure_kind": kind, "failure_code": code, "connect_ns": 5, "outcome": outcome}
    return client_turn(0, voice_to_voice_ms=None, **cause | changes)


def backoff(draw: float = 0.0) -> RedialBackoff:
    return RedialBackoff(lambda: draw)


def wait_s(after: RedialBackoff, *turns: Turn, pause_s: int = 0) -> float:
    for turn in turns:
        after.note(turn)
    return after.redial(pause_s * S).wait_ns / S


FAILED = [
    ("refused", failed(code="ECONNREFUSED", connect_ns=None)),
    ("reset while connecting", failed(code="ECONNRESET", connect_ns=None)),
    ("TLS", failed(kind="tls", code="not_tls", connect_ns=None)),
    ("name", failed(kind="dns", code="EAI_NONAME", connect_ns=None)),
    ("no session", failed(kind="timeout", code="session", connect_ns=None)),
    ("rejected", failed(kind="http_status", code="403", connect_ns=None)),
    ("dropped after connecting, without a close frame", failed(code="EOF")),
    ("reset after connecting", failed(code="ECONNRESET")),
    ("dropped in a later turn", failed(code="EOF", turn_index=3, connect_ns=None)),
    ("closed by the endpoint", failed(kind="close_code", code="1000")),
    ("closed with an error", failed(kind="close_code", code="1011")),
    ("protocol violation", failed(kind="protocol_violation", code="bad_utf8")),
    ("error of the endpoint", failed(kind="endpoint_error", code="server_error")),
    ("the answer was empty", failed("no_reply", kind="no_reply", code="empty")),
    ("no answer in time", failed("timeout", kind="timeout", code="reply_not_heard")),
    ("the answer was endless", failed("timeout", kind="timeout", code="reply_endless")),
    ("the answer was broken off", failed("interrupted", kind="interrupted")),
    ("no local port", failed("invalid", kind="generator", code="EADDRNOTAVAIL", outcome_observed="error")),
    ("an invalid turn that failed", failed("invalid", code="EOF", outcome_observed="error")),
]


@pytest.mark.parametrize("last", [case[1] for case in FAILED], ids=[case[0] for case in FAILED])
def test_each_way_to_fail_doubles_the_wait(last: Turn) -> None:
    after = backoff()
    assert [wait_s(after, last) for _ in range(6)] == [1, 2, 4, 8, 16, 20]


NOT_FAILED = [
    ("the caller has said everything", (GOOD, GOOD)),
    ("no turn began", ()),
    ("the caller's patience ran out", (failed("abandoned", kind="abandoned"),)),
    ("cut at the end of the run", (failed("cut", kind=None),)),
    ("an invalid turn that was answered", (failed("invalid", kind=None, outcome_observed="ok"),)),
    ("an answer that was never closed", (client_turn(0, outcome_reason="the reply was never closed"),)),
]


@pytest.mark.parametrize("turns", [case[1] for case in NOT_FAILED], ids=[case[0] for case in NOT_FAILED])
def test_a_call_that_did_not_fail_is_followed_at_once(turns: tuple[Turn, ...]) -> None:
    assert [wait_s(backoff(), *turns) for _ in range(3)] == [0, 0, 0]
    assert wait_s(backoff(), *turns, pause_s=3) == 3


def test_one_good_turn_resets_the_wait() -> None:
    after, drops = backoff(), failed(code="EOF", turn_index=1, connect_ns=None)
    assert [wait_s(after, drops) for _ in range(3)] == [1, 2, 4]
    assert wait_s(after, GOOD, drops) == 1  # the call that failed had a good turn before
    assert wait_s(after, drops) == 2
    assert wait_s(after, GOOD) == 0
    assert wait_s(after, drops) == 1


def test_impatient_caller_neither_lengthens_nor_resets_wait() -> None:
    after, drops = backoff(), failed(code="EOF")
    assert [wait_s(after, drops), wait_s(after, failed("abandoned")), wait_s(after, drops)] == [1, 0, 2]


@pytest.mark.parametrize("draw", [0.0, 0.25, 0.999])
def test_the_wait_is_spread_and_bounded(draw: float) -> None:
    after = backoff(draw)
    waits = [wait_s(after, failed()) for _ in range(100)]
    expected = [base * (1 + draw / 2) for base in (1, 2, 4, 8, 16, 20)]
    assert waits[:6] == pytest.approx(expected)
    assert all(1 <= wait <= 30 for wait in waits)


@pytest.mark.parametrize(
    ("code", "asked_s", "after_s"), [("429", 7.0, 7), ("503", 0.0, 1), ("503", 3600.0, 60), ("429", None, 1)]
)
def test_the_wait_is_never_shorter_than_the_endpoint_asks_for(code: str, asked_s: float | None, after_s: float) -> None:
    asked_ns = None if asked_s is None else round(asked_s * S)
    busy = failed(kind="http_status", code=code, connect_ns=None, retry_after_ns=asked_ns)
    after = backoff()
    after.note(busy)
    redial = after.redial(0)
    assert (redial.wait_ns / S, redial.asked_ns) == (after_s, asked_ns)
    assert after.redial(0).asked_ns is None  # it was about the next call alone


def test_requested_and_doubled_waits_run_concurrently() -> None:
    after, busy = backoff(), failed(kind="http_status", code="429", connect_ns=None, retry_after_ns=3 * S)
    assert [wait_s(after, busy) for _ in range(4)] == [3, 3, 4, 8]
    assert wait_s(after, busy, pause_s=90) == 90


class FakeWorker:
    """A worker whose calls end at once with these turns; its clock is that of the waits."""

    def __init__(self, *turns: Turn, error: Exception | None = None) -> None:
        self.now_ns, self.calls_ns = 0, list[int]()
        self.winding_down = self.all_planned = False
        self.open_calls = None
        self.clock = self.engine = self.clocks = self
        self.started_perf_ns = 0
        self.asked: list[int | None] = []
        self._turns, self._error = turns, error

    def perf_ns(self) -> int:
        return self.now_ns

    def call(self, on_turn: Any, *, leaving: object, retry_wait_ns: int | None) -> int:
        del leaving
        self.calls_ns.append(self.now_ns)
        self.asked.append(retry_wait_ns)
        if self._error is not None:
            raise self._error
        for turn in self._turns:
            on_turn(turn)
        return 0

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * S)


def calls_of_one_caller(monkeypatch: pytest.MonkeyPatch, worker: FakeWorker, within_s: float) -> list[float]:
    """When one caller makes calls that end at once, in s."""
    environment = Environment()
    environment.voice_worker = worker  # type: ignore[attr-defined]
    monkeypatch.setattr(users.gevent, "sleep", worker.sleep)
    user = VoiceUser(environment)
    user._backoff = backoff()
    while worker.now_ns <= within_s * S and len(worker.calls_ns) < 1000:
        try:
            user.call()
        except RuntimeError:
            continue
    return [moment / S for moment in worker.calls_ns if moment <= within_s * S]


def test_caller_of_endpoint_that_drops_calls_makes_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of_one_caller(monkeypatch, FakeWorker(failed(code="EOF")), 60)
    assert calls == pytest.approx([0, 1, 3, 7, 15, 31, 51])


def test_a_call_that_raises_is_a_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of_one_caller(monkeypatch, FakeWorker(error=RuntimeError("a fault of ours")), 10)
    assert calls == pytest.approx([0, 1, 3, 7])


def test_a_caller_whose_calls_end_well_calls_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = FakeWorker(GOOD)
    assert len(calls_of_one_caller(monkeypatch, worker, 10)) == 1000
    assert worker.now_ns == 0


def test_wait_requested_by_endpoint_is_reported_with_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = failed(kind="http_status", code="429", connect_ns=None, retry_after_ns=2 * S)
    worker = FakeWorker(busy)
    calls_of_one_caller(monkeypatch, worker, 8)
    assert worker.asked == [None, 2 * S, 2 * S, 4 * S]
