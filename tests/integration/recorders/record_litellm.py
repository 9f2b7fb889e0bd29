"""Records what a running LiteLLM proxy answers, for tests/fixtures/stages: `record_litellm.py BASE_URL FILE`.

The proxy is started as the integration test does it (tests/integration/litellm_proxy.py).
"""

import json
import sys
from pathlib import Path

import httpx

QUESTIONS = {"answer": "good", "cached": "good", "fallback": "bad", "limited": "limited", "unknown": "nope"}


def record(base_url: str) -> dict[str, object]:
    """Ask each model once, the good one twice; what was answered, byte by byte."""
    answers: dict[str, object] = {}
    for name, model in QUESTIONS.items():
        messages = [{"role": "user", "content": "what is the weather like in paris"}]
        body = {"model": model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
        answer = httpx.post(f"{base_url}/chat/completions", json=body, timeout=60)
        headers = [[key.lower(), value] for key, value in answer.headers.multi_items()]
        answers[name] = {"status": answer.status_code, "headers": headers, "body": answer.text}
    return answers


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(record(sys.argv[1]), indent=1) + "\n")
