"""What a sidecar, or whatever else listens at its address, answers of a rollout: a verdict, or one clear sentence."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from loadtest.rollout.evaluated import SidecarVerdicts, StageAnswer
from telemetry.model.errors import StoreError
from telemetry.sidecar_client import SidecarClient

VERDICT = {
    "verdict": "promote",
    "sentence": "Promote canary",
    "reasons": ["every\nmargin is kept"],
    "stage": "20",
    "share": 0.2,
    "plan": {"name": "canary", "fingerprint": "f1"},
    "cohorts": {"candidate": {"name": "b", "turns": 120}, "control": {"name": "a", "turns": 480}},
    "turns_needed": None,
    "rollout": "canary",
    "at_unix_ns": 1,
    "sequence": 7,
}
OLDER = "no sidecar that answers questions: it is of an older version, or something else listens there"
Answer = tuple[int, bytes, dict[str, str]]


class _Endpoint(HTTPServer):
    answer: Answer = (200, b"{}", {})

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, str, str | None]] = []


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        server = self.server
        assert isinstance(server, _Endpoint)
        self.rfile.read(int(self.headers.get("content-length") or 0))
        server.seen.append((self.command, self.path, self.headers.get("authorization")))
        status, body, headers = server.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815, as http.server names them

    def log_message(self, *_args: object) -> None:
        """Nothing: a test looks at what was answered."""


@pytest.fixture
def endpoint() -> Iterator[_Endpoint]:
    with _Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def ask(endpoint: _Endpoint) -> Callable[[int, object], SidecarVerdicts]:
    def answered(status: int, body: object, **headers: str) -> SidecarVerdicts:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        endpoint.answer = (status, content, headers)
        return SidecarVerdicts(SidecarClient(f"http://127.0.0.1:{endpoint.server_port}/", "s3cret"), "canary")

    return answered


def test_a_verdict_is_read_whole(ask: Callable[..., SidecarVerdicts], endpoint: _Endpoint) -> None:
    found = ask(200, VERDICT).verdict()
    assert (found.verdict, found.sentence, found.reasons) == ("promote", "Promote canary", ("every margin is kept",))
    assert found.cohorts is not None
    assert (found.stage, found.plan.fingerprint, found.cohorts.candidate.turns, found.sequence) == ("20", "f1", 120, 7)
    assert endpoint.seen == [("GET", "/v1/rollouts/canary/verdict", "Bearer s3cret")]


def test_one_that_is_not_kept_is_marked(ask: Callable[..., SidecarVerdicts]) -> None:
    found = ask(200, {**VERDICT, "sequence": None, "cohorts": None, "reasons": []}).verdict()
    assert (found.sequence, found.cohorts, found.reasons) == (None, None, ())


@pytest.mark.parametrize("left_out", ["verdict", "plan", "stage", "sentence"])
def test_a_verdict_of_another_version_is_refused(ask: Callable[..., SidecarVerdicts], left_out: str) -> None:
    body = {name: value for name, value in VERDICT.items() if name != left_out}
    with pytest.raises(StoreError, match="its verdict is not one of this version"):
        ask(200, body).verdict()


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", b"[1]", b'{"verdict": "perhaps"}', b"1" * 5000])
def test_what_is_no_verdict_is_refused(ask: Callable[..., SidecarVerdicts], body: bytes) -> None:
    with pytest.raises(StoreError, match="its verdict is not one of this version"):
        ask(200, body).verdict()


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (503, {"error": "no look\nyet"}, "no look yet"),
        (503, b"", "answers with HTTP status 503"),
        (500, {"error": 7}, "answers with HTTP status 500"),
        (401, {"error": "a valid bearer token is required"}, "the token is not its own; set VOICEPROBE_SIDECAR_TOKEN"),
        (403, {"error": "a client certificate is required"}, "a client certificate is required"),
        (404, {"error": "the rollout canary is not evaluated here"}, "the rollout canary is not evaluated here"),
        (404, b"<h1>Not Found</h1>", OLDER),
        (405, b"", OLDER),
    ],
)
def test_another_answer_is_one_sentence(
    ask: Callable[..., SidecarVerdicts], status: int, body: object, sentence: str
) -> None:
    with pytest.raises(StoreError) as error:
        ask(status, body).verdict()
    assert f": {sentence}" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_long_sentence_is_cut_short(ask: Callable[..., SidecarVerdicts]) -> None:
    with pytest.raises(StoreError) as error:
        ask(500, {"error": "x" * 100_000}).verdict()
    assert len(str(error.value)) < 600


def test_a_redirect_is_not_followed_with_the_token(ask: Callable[..., SidecarVerdicts], endpoint: _Endpoint) -> None:
    with pytest.raises(StoreError, match="answers with HTTP status 307"):
        ask(307, b"", location=f"http://127.0.0.1:{endpoint.server_port}/elsewhere").verdict()
    assert len(endpoint.seen) == 1


def test_a_rollout_is_unknown_only_to_a_sidecar(ask: Callable[..., SidecarVerdicts]) -> None:
    assert ask(200, VERDICT).is_evaluated()
    assert ask(503, {"error": "no look has ended yet"}).is_evaluated()
    assert not ask(404, {"error": "the rollout canary is not evaluated here"}).is_evaluated()
    with pytest.raises(StoreError, match="something else listens there"):
        ask(404, b"Not Found").is_evaluated()


def test_a_stage_begins_only_where_the_sidecar_says_so(
    ask: Callable[..., SidecarVerdicts], endpoint: _Endpoint
) -> None:
    assert ask(200, {"sentence": "it begins"}).begin("20") == StageAnswer(True, "it begins")
    assert ask(409, {"error": "the last verdict is hold"}).begin("20") == StageAnswer(False, "the last verdict is hold")
    for status, body in [(200, b"OK"), (409, b""), (502, b"bad gateway")]:
        with pytest.raises(StoreError):
            ask(status, body).begin("20")
    assert {(method, path) for method, path, _ in endpoint.seen} == {("POST", "/v1/rollouts/canary/stage")}
