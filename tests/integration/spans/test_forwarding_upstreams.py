"""One request to upstream servers of every mood, and what is made of each answer."""

import ssl
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from google.rpc.status_pb2 import Status

from telemetry.model.errors import ConfigError
from telemetry.sidecar.forwarding.destinations import Destination, Header
from telemetry.sidecar.forwarding.sending import RETRY_AFTER_MAX_S, PostResult, Upstream
from tests.fixtures_forwarding import (
    BlackHole,
    Mood,
    UpstreamServer,
    answer,
    dead_url,
    endless_body,
    reply,
    span_id,
    spans_request,
    take_partly,
)
from tests.integration.certificates import authority
from tests.integration.spans.test_exporter_collectors import Listener, dripping, garbage, hanging_up, silent

TAKEN = PostResult("taken", "HTTP status 200")
LATE = PostResult("taken", "HTTP status 200", "late", 3)
STATUS = Status(message="no such thing: hello").SerializeToString()


def post(url: str, *bodies: bytes, **more: Any) -> PostResult:
    destination = replace(Destination("up", url, "redact", timeout_s=30.0), **more)
    upstream = Upstream(destination, wall_clock_ns=lambda: 1_700_000_000 * 10**9)
    return upstream.send("traces", bodies or [spans_request(1)])


def in_json(content: bytes) -> Mood:
    """Answer every request in JSON."""

    def mood(_server: UpstreamServer, handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "application/json; charset=utf-8")
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return mood


def test_requests_are_joined_to_one_that_holds_them_all(upstream: UpstreamServer) -> None:
    assert post(f"{upstream.url}/base", spans_request(1, 3), spans_request(9)) == TAKEN
    assert upstream.paths == ["/base/v1/traces"]
    assert upstream.span_ids() == [span_id(number) for number in (1, 2, 3, 9)]
    assert upstream.headers[0]["content-type"] == "application/x-protobuf"


def test_without_compression_it_says_none(upstream: UpstreamServer) -> None:
    post(upstream.url, compression="none")
    assert "content-encoding" not in upstream.headers[0]
    assert upstream.read == [spans_request(1)]


@pytest.mark.parametrize(
    ("mood", "result"),
    [
        (answer(200, b"not protobuf \xff"), TAKEN),
        (answer(202), PostResult("taken", "HTTP status 202")),
        (take_partly, PostResult("taken", "HTTP status 200", "too old", 2)),
        (answer(400, STATUS), PostResult("refused", "HTTP status 400", "no such thing: hello")),
        (answer(413), PostResult("refused", "HTTP status 413")),
        (answer(422), PostResult("refused", "HTTP status 422")),
        (answer(415), PostResult("refused", "HTTP status 415")),
        (answer(451), PostResult("refused", "HTTP status 451")),
        (answer(408), PostResult("failed", "HTTP status 408")),
        (answer(403), PostResult("failed", "HTTP status 403")),
        (answer(501), PostResult("doubtful", "HTTP status 501")),
        (answer(429, retry_after="7"), PostResult("failed", "HTTP status 429", retry_after_s=7.0)),
        (answer(503, retry_after="9" * 30), PostResult("failed", "HTTP status 503", retry_after_s=RETRY_AFTER_MAX_S)),
        (answer(503, retry_after="-5"), PostResult("failed", "HTTP status 503")),
        (
            answer(503, retry_after="Tue, 14 Nov 2023 22:13:50 GMT"),
            PostResult("failed", "HTTP status 503", retry_after_s=30.0),
        ),
        (answer(502), PostResult("failed", "HTTP status 502")),
        (answer(504), PostResult("failed", "HTTP status 504")),
        (answer(401), PostResult("failed", "HTTP status 401")),
        (answer(404), PostResult("failed", "HTTP status 404")),
        (answer(500), PostResult("doubtful", "HTTP status 500")),
        (endless_body, TAKEN),
        (in_json(b'{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "late"}, "more": 1}'), LATE),
        *((in_json(content), TAKEN) for content in (b"{}", b"[" * 60_000, b'{"partialSuccess": 7}', b"\xff")),
    ],
)
def test_each_answer_gives_its_post_result(upstream: UpstreamServer, mood: Mood, result: PostResult) -> None:
    upstream.mood = mood
    assert post(upstream.url) == result


@pytest.mark.parametrize("mood", [take_partly, answer(400, STATUS)])
def test_message_that_may_quote_kept_texts_is_not_shown(upstream: UpstreamServer, mood: Mood) -> None:
    upstream.mood = mood
    assert post(upstream.url, text="keep").message == ""


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_never_followed(upstream: UpstreamServer, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SECRET", "hush")
    with closing(UpstreamServer(answer(status, location=f"{upstream.url}/v1/traces"))) as first:
        result = post(first.url, headers=(Header("authorization", env="TEST_SECRET"),))
        assert first.headers[0]["authorization"] == "hush"
    assert result.outcome == "failed"
    assert "it redirects, which is not followed" in result.message
    assert upstream.read == []


def test_no_proxy_is_taken_from_the_environment(upstream: UpstreamServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, dead_url())
    assert post(upstream.url).outcome == "taken"


@pytest.mark.parametrize("serve", [silent, dripping, garbage, hanging_up])
def test_invalid_answer_is_failure_in_time(serve: Callable[..., None]) -> None:
    with closing(Listener(serve)) as peer:
        assert post(peer.endpoint, timeout_s=0.5).outcome == "failed"


def test_a_black_hole_that_reads_nothing_is_left_in_time() -> None:
    with closing(BlackHole()) as hole:
        result = post(hole.url, b"x" * (16 << 20), timeout_s=0.5, compression="none")
    assert result == PostResult("failed", "no answer within 0.5 s")


def test_a_dead_destination_is_a_failure_and_says_so() -> None:
    assert post(dead_url()) == PostResult("failed", "Connection refused")


def test_a_secret_that_is_gone_is_a_failure_with_its_sentence(upstream: UpstreamServer, tmp_path: Path) -> None:
    result = post(upstream.url, headers=(Header("authorization", file=str(tmp_path / "gone")),))
    assert result.outcome == "failed"
    assert "gone cannot be read" in result.reason
    assert upstream.read == []


def test_cookies_of_a_destination_are_not_kept(upstream: UpstreamServer) -> None:
    upstream.mood = answer(200, set_cookie="a=b")
    sender = Upstream(Destination("up", upstream.url, "redact"))
    for _ in range(2):
        sender.send("traces", [spans_request(1)])
    assert len(upstream.headers) == 2
    assert not any("cookie" in headers for headers in upstream.headers)


def test_tls_trusts_the_authority_that_is_given_and_no_other(tmp_path: Path) -> None:
    made = authority(tmp_path / "ca")
    signed = made.sign("localhost")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(signed.cert, signed.key)
    with closing(UpstreamServer(tls=server)) as peer:
        url = f"https://localhost:{peer.port}"
        unknown = post(url)
        assert unknown.outcome == "failed"
        assert "CERTIFICATE_VERIFY_FAILED" in unknown.reason
        wrong_name = post(f"https://127.0.0.1:{peer.port}", ca_file=str(made.cert))
        assert wrong_name.outcome == "failed"
        assert peer.read == []
        assert post(url, ca_file=str(made.cert)) == TAKEN


def test_tls_shows_the_client_s_certificate(tmp_path: Path) -> None:
    made = authority(tmp_path / "ca")
    signed, client = made.sign("localhost"), made.sign("sidecar")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made.cert))
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(signed.cert, signed.key)
    with closing(UpstreamServer(tls=server)) as peer:
        known = {"ca_file": str(made.cert)}
        assert post(f"https://localhost:{peer.port}", **known).outcome == "failed"
        ours = {"client_cert_file": str(client.cert), "client_key_file": str(client.key)}
        assert post(f"https://localhost:{peer.port}", **known, **ours) == TAKEN


def test_certificates_that_cannot_be_used_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match="forward destination up: its certificates cannot be used"):
        post("https://localhost:1", ca_file=str(tmp_path / "ca.pem"))


def test_a_reply_in_the_middle_of_a_large_request_is_read(upstream: UpstreamServer) -> None:
    upstream.mood = lambda _server, handler, _body: reply(handler, 413)
    assert post(upstream.url, b"x" * (8 << 20), compression="none") == PostResult("refused", "HTTP status 413")
