"""The client against llama.cpp's server with a real small model: counts, cache and times as the server states them."""

import json
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from loadtest.llm.answers import LlmAnswer, LlmRequest, Message
from loadtest.llm.bodies import LlmTarget
from loadtest.llm.client import LlmClient, run
from loadtest.targets.assistant.real import environment

ROOT = Path(__file__).parents[3]
SYSTEM = "You answer the telephone of a small hotel by the sea, and you are brief and kind. " * 12
SCHEMA = {"type": "object", "properties": {"nights": {"type": "integer"}}, "required": ["nights"]}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def target() -> Generator[LlmTarget]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOICEPROBE_CACHE", os.environ.get("VOICEPROBE_PEERS", str(ROOT / ".venv" / "peers")))
        environment.install(print)
        command = environment.command("loadtest.targets.assistant.real.llama_server", "1", "1", "2048", "0")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield LlmTarget(json.loads(process.stdout.readline())["url"], key=None)
        process.stdin.close()


def asked(target: LlmTarget, *requests: LlmRequest) -> list[LlmAnswer]:
    async def main() -> list[LlmAnswer]:
        async with LlmClient() as client:
            assert await client.learn(target) is None
            return [await client.count_tokens(target, await client.ask(target, one)) for one in requests]

    return run(main())


def question(text: str, tokens: int = 16) -> LlmRequest:
    return LlmRequest(
        messages=(Message("user", text),), system=SYSTEM, max_tokens=tokens, exact_length=True, temperature=0
    )


def test_figures_agree_with_server_and_usage_proves_cache(target: LlmTarget) -> None:
    cold, warm = asked(target, question("Is there a room?"), question("Is there a room?"))
    assert target.model == "SmolLM2-135M-Instruct"
    for answer in (cold, warm):
        assert answer.fault is None
        assert answer.usage is not None
        assert answer.timings is not None
        assert (answer.tokens, answer.timings.predicted_n, answer.finish_reason) == (16, 16, "length")
        assert answer.usage.cached == answer.timings.cache_n
        assert answer.usage.prompt == (answer.timings.cache_n or 0) + (answer.timings.prompt_n or 0)
        # What the server did lies within what we waited for, by its own clock.
        server_s = [(ms or 0) / 1_000 for ms in (answer.timings.prompt_ms, answer.timings.predicted_ms)]
        assert (answer.first_token_s or 0) >= server_s[0]
        assert (answer.wall_s or 0) >= sum(server_s)
        # It counts as it writes, so that each chunk has its tokens.
        assert sum(chunk.tokens or 0 for chunk in answer.chunks) == 16
        assert answer.stamps in ("kernel", "user")
    assert cold.usage is not None
    assert warm.usage is not None
    assert (cold.usage.prompt or 0) > 200
    assert (warm.usage.cached or 0) >= (warm.usage.prompt or 0) - 16
    assert cold.text == warm.text


@pytest.mark.nightly
def test_structured_output_and_an_answer_without_a_system_prompt(target: LlmTarget) -> None:
    schema = LlmRequest(messages=(Message("user", "Two nights."),), max_tokens=40, json_schema=SCHEMA)
    uncounted = LlmRequest(messages=(Message("user", "Hello"),), max_tokens=8, exact_length=True)
    structured, counted = asked(target, schema, uncounted)
    assert isinstance(json.loads(structured.structured)["nights"], int)
    assert counted.tokens == 8


@pytest.mark.nightly
def test_tokens_without_usage_are_counted_by_server_tokenizer(target: LlmTarget) -> None:
    silent = LlmRequest(
        messages=(Message("user", "Hello"),),
        max_tokens=8,
        exact_length=True,
        extra_body={"stream_options": {"include_usage": False}, "timings_per_token": False},
    )
    (answer,) = asked(target, silent)
    assert answer.fault is None
    assert answer.usage is not None
    assert answer.usage.counted_by == "tokenizer"
    assert answer.tokens is not None
    assert 6 <= answer.tokens <= 9  # a tokenizer need not split as the model wrote
