"""When a caller calls again: its own pause, and what the endpoint asked for."""

import pytest

from loadtest.swarm.redial import LONGEST_NS, UNSTATED_NS, Redial, redial
from telemetry.model.turns import Turn
from tests.fixtures_turns import client_turn

S = 1_000_000_000


def _failed(kind: str, code: str | None = None, **changes: object) -> Turn:
    cause = {"failure_kind": kind, "failure_code": code, "connect_ns": 5, "outcome": "error"}
    return client_turn(0, voice_to_voice_ms=None, **cause | changes)


@pytest.mark.parametrize(
    ("last", "wait_ns"),
    [
        (None, 0),
        (client_turn(0, connect_ns=5), 0),
        (_failed("no_reply"), 0),
        (_failed("tcp", "ECONNRESET"), 0),
        (_failed("tcp", "ECONNREFUSED", connect_ns=None), UNSTATED_NS),
        (_failed("tcp", "ECONNRESET", turn_index=3, connect_ns=None), 0),  # it was connected: its first turn says so
        (_failed("http_status", "429", connect_ns=None), UNSTATED_NS),
        (_failed("http_status", "429", connect_ns=None, retry_after_ns=7 * S), 7 * S),
        (_failed("http_status", "503", connect_ns=None, retry_after_ns=0), UNSTATED_NS),
        (_failed("http_status", "503", connect_ns=None, retry_after_ns=3600 * S), LONGEST_NS),
        (_failed("close_code", "1013", turn_index=2, connect_ns=None), UNSTATED_NS),
        (_failed("endpoint_error", "rate_limit_exceeded", retry_after_ns=1_500_000_000), 1_500_000_000),
        (_failed("endpoint_error", "rate_limit_exceeded"), UNSTATED_NS),
    ],
)
def test_the_endpoint_is_obeyed_within_bounds(last: Turn | None, wait_ns: int) -> None:
    assert redial(0, last).wait_ns == wait_ns


@pytest.mark.parametrize(("pause_s", "asked_s", "wait_s"), [(2, None, 2), (2, 1, 2), (2, 9, 9), (90, 9, 90)])
def test_the_callers_own_pause_and_the_endpoints_wait_run_together(
    pause_s: int, asked_s: int | None, wait_s: int
) -> None:
    assert Redial(pause_s * S, None if asked_s is None else asked_s * S).wait_ns == wait_s * S
