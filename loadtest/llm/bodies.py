"""The HTTP request for one answer, in each wire, and what of it a server need not accept. Pure."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import orjson

from loadtest.errors import UsageError
from loadtest.llm.answers import LlmRequest
from loadtest.llm.target import LlmTarget, Wire
from loadtest.protocols.http_items import HttpRequest

Body = dict[str, Any]
ANTHROPIC_VERSION: Final = "2023-06-01"
# Anthropic wants a limit; without one of the user's, this one.
ANTHROPIC_MOST: Final = 4096
# Fields that not every server accepts, in each wire; `LlmTarget.refused` has those that the target refused.
OPTIONAL: Final[Mapping[Wire, tuple[str, ...]]] = {
    "openai": (
        *("max_tokens", "ignore_eos", "min_tokens", "timings_per_token", "continuous_usage_stats", "stream_options"),
        *("temperature", "seed"),
    ),
    "anthropic": ("temperature",),
    "gemini": ("temperature", "seed", "responseJsonSchema"),
}


def http_request(target: LlmTarget, request: LlmRequest) -> HttpRequest:
    """Return the request for one answer. Raises UsageError where the wire needs a model and there is none."""
    body = {"openai": _openai, "anthropic": _anthropic, "gemini": _gemini}[target.wire](target, request)
    content = orjson.dumps({**body, **request.extra_body})
    # What is compressed on the way is held back until a block is full.
    kinds = (("Content-Type", "application/json"), ("Accept", "text/event-stream"), ("Accept-Encoding", "identity"))
    headers = (*kinds, *auth_headers(target))
    return HttpRequest("ask", "POST", answer_url(target), headers, content)


def get_request(target: LlmTarget, method: str, url: str, body: bytes = b"") -> HttpRequest:
    """Return a small request to the target's server, with its key."""
    kind = (("Content-Type", "application/json"),) if body else ()
    return HttpRequest("small", method, url, (*kind, *auth_headers(target)), body)


def auth_headers(target: LlmTarget) -> tuple[tuple[str, str], ...]:
    """Return the headers that carry the key, and the version of the wire."""
    key = None if target.key is None else target.key.reveal()
    if target.wire == "anthropic":
        return (("anthropic-version", ANTHROPIC_VERSION), *(() if key is None else (("x-api-key", key),)))
    if key is None:
        return ()
    if target.wire == "gemini":
        return (("x-goog-api-key", key),)
    if target.address.host.endswith(".openai.azure.com"):
        return (("api-key", key),)
    return (("Authorization", f"Bearer {key}"),)


def answer_url(target: LlmTarget) -> str:
    """Return where answers are asked for: the target's own address where it is whole, else the wire's path on it."""
    if target.wire == "openai":
        return _under(target.url, "/chat/completions", "/v1")
    if target.wire == "anthropic":
        return _under(target.url, "/messages", "/v1")
    parts = urlsplit(target.url)
    if ":" in parts.path:
        path = parts.path.rpartition(":")[0]
    else:
        base = parts.path.rstrip("/") or "/v1beta"
        path = f"{base}/models/{quote(model_of(target).removeprefix('models/'), safe='')}"
    query = "&".join([*(part for part in parts.query.split("&") if part not in ("", "alt=sse")), "alt=sse"])
    return urlunsplit((parts.scheme, parts.netloc, f"{path}:streamGenerateContent", query, ""))


def sibling_url(target: LlmTarget, path: str) -> str:
    """Return the address of another path of the same API: `/models`."""
    parts = urlsplit(target.url)
    base = parts.path
    for end in ("/chat/completions", "/messages"):
        base = base.removesuffix(end)
    if ":" in base:
        base = base.rpartition("/models/")[0]
    base = base.rstrip("/") or ("/v1beta" if target.wire == "gemini" else "/v1")
    return urlunsplit((parts.scheme, parts.netloc, base + path, parts.query, ""))


def model_of(target: LlmTarget) -> str:
    """Return the model to ask. Raises UsageError where there is none."""
    if target.model is None:
        raise UsageError(f"{target.name} needs the name of a model; give one with --model")
    return target.model


def _under(url: str, path: str, version: str) -> str:
    parts = urlsplit(url)
    base = parts.path.rstrip("/")
    whole = base if base.endswith(path) else (base or version) + path
    return urlunsplit((parts.scheme, parts.netloc, whole, parts.query, ""))


def _kept(target: LlmTarget, **fields: Any) -> Body:
    """Return the fields without those that are None and those that the target has refused."""
    return {name: value for name, value in fields.items() if value is not None and name not in target.refused}


def _openai(target: LlmTarget, request: LlmRequest) -> Body:
    exact = request.exact_length or None
    system = [] if request.system is None else [{"role": "system", "content": request.system}]
    body: Body = {
        "messages": [*system, *({"role": message.role, "content": message.content} for message in request.messages)],
        "stream": True,
        **({} if target.model is None else {"model": target.model}),
        **_kept(
            target,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            ignore_eos=exact,
            min_tokens=request.max_tokens if exact else None,
        ),
    }
    # OpenAI's newer models refuse the older name.
    if request.max_tokens is not None and "max_tokens" in target.refused:
        body["max_completion_tokens"] = request.max_tokens
    options = {"include_usage": True, **_kept(target, continuous_usage_stats=True)}
    body |= _kept(target, stream_options=options, timings_per_token=True)
    if request.json_schema is not None:
        schema = {"name": "answer", "schema": dict(request.json_schema), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.tools:
        body["tools"] = [{"type": "function", "function": dict(tool)} for tool in request.tools]
        body["tool_choice"] = "required"
    return body


def _anthropic(target: LlmTarget, request: LlmRequest) -> Body:
    body: Body = {
        "model": model_of(target),
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "max_tokens": request.max_tokens or ANTHROPIC_MOST,
        "stream": True,
        **_kept(target, temperature=request.temperature),
    }
    if request.system is not None:
        # Nothing is cached there that is not marked.
        body["system"] = [{"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}]
    tools = [
        {"name": tool["name"], "description": tool.get("description", ""), "input_schema": tool["parameters"]}
        for tool in request.tools
    ]
    if request.json_schema is not None:
        # The one way to JSON of a schema that all its models have.
        tools.append({"name": "answer", "description": "Gives the answer.", "input_schema": dict(request.json_schema)})
    if tools:
        body |= {"tools": tools, "tool_choice": {"type": "any"}}
    return body


def _gemini(target: LlmTarget, request: LlmRequest) -> Body:
    settings = _kept(target, maxOutputTokens=request.max_tokens, temperature=request.temperature, seed=request.seed)
    if request.json_schema is not None:
        settings |= {
            "responseMimeType": "application/json",
            **_kept(target, responseJsonSchema=dict(request.json_schema)),
        }
    body: Body = {
        "contents": [
            {"role": "model" if message.role == "assistant" else "user", "parts": [{"text": message.content}]}
            for message in request.messages
        ],
        "generationConfig": settings,
    }
    if request.system is not None:
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [dict(tool) for tool in request.tools]}]
        body["toolConfig"] = {"functionCallingConfig": {"mode": "ANY"}}
    return body
