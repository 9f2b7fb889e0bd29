"""Each way in which an endpoint refuses, breaks off or misbehaves has a cause of its own on the turn that it hit."""

import socket

import pytest

from telemetry.model.turns import Turn
from tests.integration.calling import Callers
from tests.integration.raw_endpoint import (
    READY,
    Behave,
    close,
    raw_endpoint,
    refusing,
    refusing_until_closed,
    saying,
    text,
    upgraded,
)

ERROR = b'{"type":"error","error":{"type":"invalid_request_error","code":"session_expired","message":"over"}}'
BUSY = b'{"type":"error","error":{"code":"rate_limit_exceeded","message":"slow down","retry_after":2.5}}'
S = 1_000_000_000
MID_SPEECH = 60_000  # bytes of audio: some 0.7 s, and the caller begins to speak after 0.1

CASES: tuple[tuple[str, Behave, str, str | None, int | None], ...] = (
    ("429", refusing("429 Too Many Requests", "Retry-After: 7"), "http_status", "429", 7 * S),
    (
        "503-date",
        refusing("503 Busy", "Date: Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After: Wed, 21 Oct 2015 07:28:30 GMT"),
        "http_status",
        "503",
        30 * S,
    ),
    ("403", refusing("403 Forbidden"), "http_status", "403", None),
    ("503-no-length", refusing_until_closed("503 Busy", "Retry-After: 7"), "http_status", "503", 7 * S),
    ("503-reset", refusing_until_closed("503 Busy", "Retry-After: 7", reset=True), "http_status", "503", 7 * S),
    ("not-http", saying(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "protocol_violation", "not_http", None),
    ("101-without-key", refusing("101 Switching Protocols"), "protocol_violation", "bad_upgrade", None),
    ("closed-1008", upgraded(READY, close(1008, "policy")), "close_code", "1008", None),
    ("closed-1013", upgraded(close(1013, "later")), "close_code", "1013", None),
    ("bad-utf8", upgraded(READY, text(b'{"type":"\xff\xfe"}')), "protocol_violation", "bad_utf8", None),
    ("bad-frame", upgraded(READY, b"\xf1\x00"), "protocol_violation", "1002", None),
    ("expired", upgraded(READY, text(ERROR)), "endpoint_error", "session_expired", None),
    (
        "busy",
        upgraded(READY, then=text(BUSY), after_bytes=MID_SPEECH),
        "endpoint_error",
        "rate_limit_exceeded",
        2_500_000_000,
    ),
    ("reset", upgraded(READY, reset=True), "tcp", "ECONNRESET", None),
    ("cut", upgraded(READY, hold=False), "tcp", None, None),
    ("half-open", upgraded(), "timeout", "session", None),
    ("mute", upgraded(READY), "no_reply", None, None),
)


def _call(url: str, patience_s: float = 60.0) -> Turn:
    ((turn, *_),) = Callers(url, 1, reply_s=patience_s, ready_s=patience_s).call()
    return turn


@pytest.mark.parametrize(
    ("behave", "kind", "code", "retry_after_ns"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_each_way_to_fail_has_a_cause_of_its_own(
    behave: Behave, kind: str, code: str | None, retry_after_ns: int | None
) -> None:
    # Nothing more comes; an error without a response may be of anything, and is the cause once nobody has answered.
    nothing_comes = kind in ("timeout", "no_reply") or code == "rate_limit_exceeded"
    with raw_endpoint(behave) as endpoint:
        turn = _call(endpoint.url, 1.0 if nothing_comes else 60.0)
    assert turn.outcome != "ok"
    assert (turn.failure_kind, turn.retry_after_ns) == (kind, retry_after_ns), turn
    # A stream that ends may show as its end or as a reset, by what the caller was sending just then.
    assert turn.failure_code == code or (code is None and turn.failure_code in (None, "EOF", "ECONNRESET", "EPIPE"))


def test_closed_port_and_unknown_name_have_their_causes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    turn = _call(f"ws://127.0.0.1:{port}/")
    assert (turn.failure_kind, turn.failure_code, turn.connect_ns) == ("tcp", "ECONNREFUSED", None)
    turn = _call("ws://no-such-name.invalid:1/")
    assert turn.failure_kind == "dns"
    assert (turn.failure_code or "").startswith("EAI_")
