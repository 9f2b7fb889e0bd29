"""Records the spans of requests to a language model for tests/fixtures/frameworks: `record_spans_openai.py FOLDER`.

Runs where `openai` and one of its instrumentations is installed: `opentelemetry-instrumentation-openai` (OpenLLMetry),
or with `genai` as second argument `opentelemetry-instrumentation-openai-v2` (the conventions themselves). The model is
a server in this process with known delays. Texts are invented.
"""

import contextlib
import importlib.metadata
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import openai
import spans_fixture
from opentelemetry import trace

FIRST_TOKEN_S = 0.08
TOKEN_S = 0.01


class Model(BaseHTTPRequestHandler):
    """Answers in four words, or with an error where the model is called `none`."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["model"] == "none":
            self._answer(404, b'{"error": {"message": "no such model", "code": "model_not_found"}}', "application/json")
            return
        time.sleep(FIRST_TOKEN_S)
        cached = 32 if len(asked["messages"]) > 1 else 0
        usage = {
            "prompt_tokens": 40,
            "completion_tokens": 4,
            "total_tokens": 44,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        head = {"id": "chatcmpl-1", "created": 1, "model": "scripted-llm"}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for word in ("The ", "light ", "is ", "on."):
            self._chunk(head, [{"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": None}])
            time.sleep(TOKEN_S)
        self._chunk(head, [{"index": 0, "delta": {}, "finish_reason": "stop"}])
        self._chunk(head, [], usage)
        self.wfile.write(b"data: [DONE]\n\n")

    def _chunk(self, head: dict[str, Any], choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> None:
        chunk = {**head, "object": "chat.completion.chunk", "choices": choices, "usage": usage}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.flush()

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *what: object) -> None:
        pass


def ask(client: openai.OpenAI, model: str, messages: list[dict[str, str]]) -> None:
    options = {"stream_options": {"include_usage": True}}
    for _ in client.chat.completions.create(model=model, messages=messages, stream=True, **options):
        pass


def converse(client: openai.OpenAI) -> None:
    """A request by itself, two within an agent's span, and one that fails."""
    question = {"role": "user", "content": "turn on the light"}
    ask(client, "scripted-llm", [question])
    with trace.get_tracer("my-agent").start_as_current_span("invoke_agent hall") as span:
        span.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "call-1"})
        attributes = {"feature_flag.key": "voice", "feature_flag.result.variant": "canary"}
        span.add_event("feature_flag.evaluation", attributes)
        ask(client, "scripted-llm", [question])
        ask(client, "scripted-llm", [question, {"role": "assistant", "content": "Which one?"}, question])
    with contextlib.suppress(openai.NotFoundError):
        ask(client, "none", [question])


def main(folder: Path, genai: bool) -> None:
    recorder = spans_fixture.Recorder("text-agent")
    trace.set_tracer_provider(recorder.provider)
    package = "opentelemetry-instrumentation-openai"
    if genai:
        os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

        package += "-v2"
    else:
        from opentelemetry.instrumentation.openai import OpenAIInstrumentor
    OpenAIInstrumentor().instrument(tracer_provider=recorder.provider)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=0)
    converse(client)
    version = importlib.metadata.version(package)
    about = {package: version, "openai": importlib.metadata.version("openai")}
    name = f"genai-openai-v2-{version}" if genai else f"openllmetry-openai-{version}"
    recorder.write(folder / name / "requests.json", about)
    server.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "genai" in sys.argv[2:])
