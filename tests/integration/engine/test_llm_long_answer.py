"""An answer of a language model that streams longer than callers wait for its beginning: a real server and callers."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from telemetry.model.metrics import METRICS
from tests.integration.calling import Callers

REPLY_S = 3.0
GAP_S, TOKENS = 0.5, 9  # longer than REPLY_S in all


class Model(BaseHTTPRequestHandler):
    """Streams an answer slowly; with `max_tokens` no more of them."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._begin("application/json", "Content-Length: 2")
        self.wfile.write(b"{}")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._begin("text/event-stream", "Connection: close")
        count = min(TOKENS, asked.get("max_tokens", TOKENS))
        for _ in range(count):
            self._event({"choices": [{"index": 0, "delta": {"content": "on and "}}]})
            time.sleep(GAP_S)
        why = "length" if count < TOKENS else "stop"
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": why}]})
        self.wfile.write(b"data: [DONE]\n\n")

    def _begin(self, kind: str, header: str) -> None:
        self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{header}\r\n\r\n".encode())
        self.close_connection = header.endswith("close")

    def _event(self, value: object) -> None:
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


def test_answer_longer_than_reply_timeout_is_played_to_its_end(url: str) -> None:
    callers = Callers(url, 1, protocol="llm", manual_turns=True, reply_s=REPLY_S, endpointing_ms=None)
    ((turn,),) = callers.call()
    assert (turn.outcome, turn.outcome_reason) == ("ok", None)
    assert turn.llm_chunks == TOKENS
    first = METRICS["llm_first_token_latency"].value(turn)
    assert first is not None
    assert first < REPLY_S * 1e9
    assert (turn.llm_last_token_perf_ns or 0) - (turn.speech_end_perf_ns or 0) > REPLY_S * 1e9


def test_its_longest_length_is_bounded(url: str) -> None:
    callers = Callers(url, 1, protocol="llm", manual_turns=True, reply_s=REPLY_S, endpointing_ms=None)
    callers.longest_reply_s = 1.2
    ((turn,),) = callers.call()
    assert (turn.outcome, turn.failure_code) == ("timeout", "reply_endless")


def test_the_number_of_its_tokens_can_be_limited(url: str) -> None:
    callers = Callers(url, 1, protocol="llm", manual_turns=True, reply_s=REPLY_S, endpointing_ms=None)
    callers.wire_settings = {"llm_max_tokens": 2}
    ((turn,),) = callers.call()
    assert (turn.outcome, turn.llm_chunks) == ("ok", 2)
    assert "cut its reply short (length)" in (turn.outcome_reason or "")
