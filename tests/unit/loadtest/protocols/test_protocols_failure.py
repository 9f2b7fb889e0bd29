"""The causes of failures: sanitized codes, and the forms in which an endpoint requests a wait."""

import pytest

from loadtest.protocols.failure import (
    LONGEST_RETRY_NS,
    MAX_CODE_CHARS,
    Failure,
    code_of,
    retry_after_of_fields,
    retry_after_of_headers,
)
from loadtest.protocols.transports.websocket import Closed, Rejected

S = 1_000_000_000
NOW = 1_445_412_400 * S  # Wed, 21 Oct 2015 07:26:40 GMT


@pytest.mark.parametrize(
    ("headers", "wait_ns"),
    [
        ((("Retry-After", "7"),), 7 * S),
        ((("retry-after", " 0 "),), 0),
        ((("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"),), 80 * S),  # by our clock: there is no Date header
        (
            (("Date", "Wed, 21 Oct 2015 09:00:00 GMT"), ("Retry-After", "Wed, 21 Oct 2015 09:00:30 GMT")),
            30 * S,  # by the endpoint's own clock, which is 93 minutes fast
        ),
        ((("Date", "nonsense"), ("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")), 80 * S),
        ((("Retry-After", "Wed, 21 Oct 2015 07:00:00 GMT"),), 0),  # in the past: at once
        ((("Retry-After", "9" * 400),), LONGEST_RETRY_NS),
        ((("Retry-After", "-5"),), None),
        ((("Retry-After", "soon"),), None),
        ((("Retry-After", "²"),), None),
        ((("Retry-After", ""),), None),
        ((), None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: tuple[tuple[str, str], ...], wait_ns: int | None) -> None:
    assert retry_after_of_headers(headers, NOW) == wait_ns


@pytest.mark.parametrize(
    ("fields", "wait_ns"),
    [
        ({"retry_after": 1.5}, 1_500_000_000),
        ({"retry_after": "2"}, 2 * S),
        ({"retry_after_ms": 250}, 250_000_000),
        ({"retry_after_seconds": 3}, 3 * S),
        ({"retry_after": True}, None),
        ({"retry_after": "a while"}, None),
        ({"retry_after": float("nan")}, None),
        ({"retry_after": float("inf")}, LONGEST_RETRY_NS),
        ({"retry_after": -1}, 0),
        ({"retry_after": None, "retry_after_ms": "100"}, 100_000_000),
        ({"message": "Please try again in 1.2s."}, None),  # prose is not parsed
    ],
)
def test_an_error_may_request_a_wait_in_a_field(fields: dict[str, object], wait_ns: int | None) -> None:
    assert retry_after_of_fields(fields) == wait_ns


def test_a_code_is_short_and_has_only_plain_characters() -> None:
    assert code_of(None, "", "  ", "rate_limit_exceeded") == "rate_limit_exceeded"
    assert code_of(429, "unused") == "429"
    assert code_of(True, {}, []) is None
    assert code_of("\x1b[31mred\n<b>") == "__31mred__b_"
    assert len(code_of("x" * 1000) or "") == MAX_CODE_CHARS


@pytest.mark.parametrize(
    ("item", "failure"),
    [
        (Rejected(429, "Too Many Requests"), Failure("http_status", "429")),
        (Rejected(None, "not HTTP"), Failure("protocol_violation", "not_http")),
        (Rejected(101, "no key"), Failure("protocol_violation", "bad_upgrade")),
        (Closed(1013, "later", clean=True), Failure("close_code", "1013")),
        (Closed(1006, "gone", clean=False), Failure("tcp", "EOF")),
        (Closed(1007, "not UTF-8", clean=False), Failure("protocol_violation", "bad_utf8")),
        (Closed(1002, "bad frame", clean=False), Failure("protocol_violation", "1002")),
    ],
)
def test_the_end_of_a_websocket_has_a_cause(item: Rejected | Closed, failure: Failure) -> None:
    assert item.failure == failure
