"""Where each wire is asked, with what, and with which key."""

import json
from typing import Any

import pytest

from loadtest.errors import UsageError
from loadtest.llm.answers import LlmRequest, Message
from loadtest.llm.bodies import Key, LlmTarget, Wire, http_request, key_of, sibling_url, wire_of

SCHEMA = {"type": "object", "properties": {"nights": {"type": "integer"}}}
TOOL = {"name": "book", "description": "Books.", "parameters": SCHEMA}
REQUEST = LlmRequest(
    messages=(Message("user", "Hi"), Message("assistant", "Yes?"), Message("user", "Go")),
    system="Be brief.",
    max_tokens=50,
    exact_length=True,
    temperature=0.0,
    seed=1,
)


def sent(
    url: str, request: LlmRequest = REQUEST, *, refused: frozenset[str] = frozenset()
) -> tuple[str, Any, dict[str, str]]:
    target = LlmTarget(url, "small", key=Key("k-1"))
    target.refused = refused
    made = http_request(target, request)
    return made.url, json.loads(made.body), dict(made.headers)


@pytest.mark.parametrize(
    ("url", "wire", "asked_at"),
    [
        ("http://h:1", "openai", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/", "openai", "http://h:1/v1/chat/completions"),
        ("https://h/api/v3/chat/completions?v=2", "openai", "https://h/api/v3/chat/completions?v=2"),
        ("https://api.anthropic.com", "anthropic", "https://api.anthropic.com/v1/messages"),
        ("https://proxy.example/v1/messages", "anthropic", "https://proxy.example/v1/messages"),
        (
            "https://generativelanguage.googleapis.com/v1beta",
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/models/small:streamGenerateContent?alt=sse",
        ),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "openai",
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        ),
    ],
)
def test_the_wire_and_the_path_follow_from_the_address(url: str, wire: Wire, asked_at: str) -> None:
    assert wire_of(url) == wire
    assert sent(url)[0] == asked_at


def test_openai_body_asks_for_exact_length_and_running_usage() -> None:
    _, body, headers = sent("http://h:1")
    assert headers["Authorization"] == "Bearer k-1"
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "user"]
    assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == (50, 50, True)
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    refused = frozenset({"max_tokens", "ignore_eos", "min_tokens", "continuous_usage_stats", "temperature"})
    _, body, _ = sent("http://h:1", refused=refused)
    assert body["stream_options"] == {"include_usage": True}
    assert body["max_completion_tokens"] == 50
    assert not refused & body.keys()


def test_structured_output_in_each_wire() -> None:
    schema = LlmRequest(messages=(Message("user", "Hi"),), json_schema=SCHEMA)
    tool = LlmRequest(messages=(Message("user", "Hi"),), tools=(TOOL,), extra_body={"top_p": 0.5})
    openai, anthropic, gemini = "http://h:1", "https://api.anthropic.com", "https://generativelanguage.googleapis.com"
    assert sent(openai, schema)[1]["response_format"]["json_schema"]["schema"] == SCHEMA
    assert sent(openai, tool)[1]["tools"][0]["function"] == TOOL
    assert sent(openai, tool)[1]["top_p"] == 0.5
    assert sent(anthropic, schema)[1]["tools"][0]["input_schema"] == SCHEMA
    assert sent(anthropic, tool)[1]["tool_choice"] == {"type": "any"}
    assert sent(gemini, schema)[1]["generationConfig"]["responseJsonSchema"] == SCHEMA
    assert sent(gemini, tool)[1]["tools"][0]["functionDeclarations"] == [TOOL]


def test_keys_and_system_prompt_use_own_header_and_field_per_api() -> None:
    _, body, headers = sent("https://api.anthropic.com")
    assert (headers["x-api-key"], "Authorization" in headers) == ("k-1", False)
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    url, body, headers = sent("https://generativelanguage.googleapis.com")
    assert (headers["x-goog-api-key"], "k-1" in url) == ("k-1", False)
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert [content["role"] for content in body["contents"]] == ["user", "model", "user"]


def test_other_paths_of_the_same_server() -> None:
    for url in ("http://h:1", "http://h:1/v1", "http://h:1/v1/chat/completions"):
        assert sibling_url(LlmTarget(url, key=None), "/models") == "http://h:1/v1/models"


def test_a_key_is_read_from_the_environment_alone() -> None:
    key = key_of("anthropic", {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"})
    assert key is not None
    assert (key.reveal(), repr(key)) == ("a", "Key(…)")
    named = key_of("openai", {"MINE": "m"}, "MINE")
    assert named is not None
    assert named.reveal() == "m"
    assert key_of("gemini", {}) is None
    with pytest.raises(UsageError, match="MINE is not set"):
        key_of("openai", {}, "MINE")
    with pytest.raises(UsageError, match="cannot carry") as raised:
        key_of("openai", {"OPENAI_API_KEY": "sécret"})
    assert "sécret" not in str(raised.value)


def test_a_wire_that_needs_a_model_says_so() -> None:
    with pytest.raises(UsageError, match="--model"):
        http_request(LlmTarget("https://api.anthropic.com", key=None), REQUEST)
    assert "secret" not in LlmTarget("http://user:secret@h:1/v1?key=secret", key=None).name
