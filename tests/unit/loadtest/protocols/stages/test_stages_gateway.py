"""What the headers of gateways say about who answered, as LiteLLM sent them and as other gateways document them."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.protocols.stages.reader import served_by

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[4] / "fixtures" / "stages" / "litellm-1.106.2.json").read_text()
)


def of_litellm(name: str) -> tuple[dict[str, str], dict[str, int]]:
    return served_by(tuple((key, value) for key, value in RECORDED[name]["headers"]), "llm")


def test_an_answer_of_the_model_says_its_route_and_nothing_of_a_cache() -> None:
    metadata, service_ns = of_litellm("answer")
    assert metadata["voice.route"] == "cloud"
    assert metadata["voice.model"] == "openai/gpt-good"
    assert "voice.cache_hit" not in metadata
    assert "voice.fallback" not in metadata
    assert metadata["llm.x-litellm-call-id"]
    assert service_ns["llm.response"] > 0


def test_an_answer_from_the_cache_is_a_hit() -> None:
    metadata, service_ns = of_litellm("cached")
    assert metadata["voice.cache_hit"] == "true"
    assert metadata["voice.route"] == "cache"
    assert 0 < service_ns["llm.gateway_overhead"] <= service_ns["llm.response"]


def test_an_answer_of_another_model_than_the_one_asked_is_a_fallback() -> None:
    assert of_litellm("fallback")[0]["voice.fallback"] == "model"


@pytest.mark.parametrize(
    ("header", "value", "hit"),
    [
        ("X-Portkey-Cache-Status", "HIT", "true"),
        ("x-portkey-cache-status", "SEMANTIC HIT", "true"),
        ("x-portkey-cache-status", "SEMANTIC MISS", "false"),
        ("x-portkey-cache-status", "DISABLED", None),
        ("cf-aig-cache-status", "MISS", "false"),
        ("helicone-cache", "HIT", "true"),
        ("x-cache", "Hit from cloudfront", "true"),
    ],
)
def test_the_caches_of_other_gateways(header: str, value: str, hit: str | None) -> None:
    assert served_by(((header, value),), "llm")[0].get("voice.cache_hit") == hit


@pytest.mark.parametrize(
    ("base", "route"),
    [
        ("http://10.0.0.7:8000/v1", "local"),
        ("http://localhost:8000", "local"),
        ("http://vllm:8000/v1", "local"),
        ("http://vllm.llm.svc.local/v1", "local"),
        ("https://api.openai.com", "cloud"),
        ("https://8.8.8.8/v1", "cloud"),
        ("", None),
        ("http://[", None),
    ],
)
def test_where_the_model_behind_a_gateway_runs(base: str, route: str | None) -> None:
    assert served_by((("x-litellm-model-api-base", base),), "llm")[0].get("voice.route") == route


def test_the_service_s_own_latencies() -> None:
    headers = (
        ("openai-processing-ms", "412"),
        ("Server-Timing", 'queue;dur=1.5, prefill;desc="first, part";dur=20, nothing, bad;dur=x'),
        ("x-litellm-response-duration-ms", "not a number"),
        ("x-litellm-overhead-duration-ms", "-3"),
    )
    _, service_ns = served_by(headers, "tts")
    assert service_ns["tts.processing"] == 412_000_000
    assert service_ns["tts.queue"] == 1_500_000
    assert "tts.response" not in service_ns
    assert "tts.gateway_overhead" not in service_ns
    assert "tts.bad" not in service_ns
