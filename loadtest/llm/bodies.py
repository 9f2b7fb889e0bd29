"""A target (its address, wire, name and key) and the HTTP request for one answer in each wire. Pure.

The key is in memory only and never shown. `OPTIONAL` is what of a request a server need not accept.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit, urlunsplit

import orjson

from loadtest.errors import UsageError
from loadtest.llm.answers import LlmRequest
from loadtest.protocols.address import Address, parse_address, public_target
from loadtest.protocols.http_items import HttpRequest

Wire = Literal["openai", "anthropic", "gemini"]
KEY_VARIABLES: Final[Mapping[Wire, tuple[str, ...]]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
_VENDOR_HOSTS: Final[Mapping[str, Wire]] = {
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gemini",
}


class Key:
    """A secret that neither repr, a log nor an exception shows."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Key(…)"

    def reveal(self) -> str:
        """Return the secret, for a header of a request."""
        return self._value


class LlmTarget:
    """One model at one address. `name` is how reports call it; `LlmClient.learn` finds what it refuses."""

    def __init__(
        self, url: str, model: str | None = None, *, wire: Wire | None = None, name: str | None = None, key: Key | None
    ) -> None:
        """Check the address. Raises UsageError with one sentence."""
        self.address: Address = parse_address(url, "http")
        self.url = url.rstrip("/")
        self.wire: Wire = wire or wire_of(url)
        self.model = model
        self.key = key
        self.refused: frozenset[str] = frozenset()  # fields of requests that the server refused
        self.name = name or public_target(self.url) + (f" {model}" if model else "")

    def __repr__(self) -> str:
        return f"LlmTarget({self.name!r}, {self.wire})"


def wire_of(url: str) -> Wire:
    """Return the wire that an address speaks: a vendor's own by its host or path, else OpenAI's."""
    parts = urlsplit(url)
    host, path = (parts.hostname or "").lower(), parts.path.rstrip("/").lower()
    if host in _VENDOR_HOSTS and not path.endswith(("/openai", "/openai/chat/completions")):
        return _VENDOR_HOSTS[host]
    if path.endswith("/messages"):
        return "anthropic"
    if ":streamgeneratecontent" in path or ":generatecontent" in path:
        return "gemini"
    return "openai"


def key_of(wire: Wire, environment: Mapping[str, str], variable: str | None = None) -> Key | None:
    """Return the key in the environment, in `variable` or in the wire's usual one; None without one.

    Raises UsageError where `variable` is named and not set, or where a header cannot carry the key.
    """
    if variable is not None and not environment.get(variable):
        raise UsageError(f"the environment variable {variable} is not set; set it to the key of the endpoint")
    names = KEY_VARIABLES[wire] if variable is None else (variable,)
    credential = next(((name, value) for name in names if (value := environment.get(name, "").strip())), None)
    if credential is None:
        return None
    if not credential[1].isascii() or not credential[1].isprintable():
        raise UsageError(f"{credential[0]} contains characters that a header cannot carry")
    return Key(credential[1])


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
    """Return the address of answers: the target's own address where it is whole, else the wire's path on it."""
    if target.wire == "openai":
        return _under(target.url, "/chat/completions")
    if target.wire == "anthropic":
        return _under(target.url, "/messages")
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


def _under(url: str, path: str) -> str:
    parts = urlsplit(url)
    base = parts.path.rstrip("/")
    whole = base if base.endswith(path) else (base or "/v1") + path
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
