"""Facts in a response's headers on who answered: cache, route, fallback, request ids, the service's own times.

LiteLLM's names are the best known; those of other gateways that say the same are read too. A header that is missing
says nothing: a cache hit is then not reported, never "no".
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from loadtest.protocols.endpoint_headers import kept_headers
from telemetry.model import semconv

# The service's own latencies in ms, and our names for them.
LATENCY_HEADERS: Final[Mapping[str, str]] = {
    "openai-processing-ms": "processing",
    "x-litellm-response-duration-ms": "response",
    "x-litellm-overhead-duration-ms": "gateway_overhead",
    "x-envoy-upstream-service-time": "upstream",
}
# Caches that answer with a word, and the number that names the target that answered (0: the first one).
CACHE_HEADERS: Final = ("x-portkey-cache-status", "cf-aig-cache-status", "helicone-cache", "x-cache")
FALLBACK_HEADERS: Final = ("x-litellm-attempted-fallbacks", "cf-aig-step")

_LONGEST_MS: Final = 86_400_000.0
_METRIC: Final = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)((?:\s*;[^,]*)?)")
_DURATION: Final = re.compile(r';\s*dur\s*=\s*"?([0-9.]+)"?', re.IGNORECASE)
_MAX_CHARS: Final = 200


def served_by(headers: tuple[tuple[str, str], ...], stage: str) -> tuple[dict[str, str], dict[str, int]]:
    """Return the metadata and the service's own latencies (ns) that the headers of a response contain.

    Facts about the turn have the names of `telemetry.model.semconv`; headers that are kept have their own, after the
    stage's: `llm.x-request-id`.
    """
    found = {name.lower(): value.strip() for name, value in headers}
    metadata = kept_headers(headers, stage)
    hit = _cache_hit(found)
    if hit is not None:
        metadata[semconv.META_CACHE_HIT] = "true" if hit else "false"
    if (route := "cache" if hit else _route(found.get("x-litellm-model-api-base", ""))) is not None:
        metadata[semconv.META_ROUTE] = route
    if found.get("x-litellm-model-name"):
        metadata[semconv.META_MODEL] = found["x-litellm-model-name"][:_MAX_CHARS]
    if any((_count(found.get(name)) or 0) > 0 for name in FALLBACK_HEADERS):
        metadata[semconv.META_FALLBACK] = "model"
    return metadata, _latencies(found, stage)


def _cache_hit(found: Mapping[str, str]) -> bool | None:
    if found.get("x-litellm-cache-key"):
        return True  # LiteLLM sends it with an answer from its cache, and with no other
    for name in CACHE_HEADERS:
        words = found.get(name, "").upper().split()
        if "HIT" in words:
            return True
        if "MISS" in words:
            return False
    # LiteLLM without that header: a miss, or no cache at all, which cannot be distinguished.
    return None


def _route(api_base: str) -> semconv.Route | None:
    """Return whether the model behind a gateway runs in a private network or elsewhere; None if that is not said."""
    try:
        host = urlsplit(api_base).hostname
    except ValueError:
        return None
    if not host:
        return None
    try:
        return "local" if ipaddress.ip_address(host).is_private else "cloud"
    except ValueError:
        return "cloud" if "." in host and not host.endswith((".local", ".internal", ".localhost")) else "local"


def _latencies(found: Mapping[str, str], stage: str) -> dict[str, int]:
    latencies = {
        f"{stage}.{name}": ns
        for header, name in LATENCY_HEADERS.items()
        if (ns := _milliseconds_ns(found.get(header))) is not None
    }
    for name, parameters in _METRIC.findall(found.get("server-timing", "")):
        duration = _DURATION.search(parameters)
        ns = _milliseconds_ns(duration.group(1)) if duration is not None else None
        if ns is not None:
            latencies[f"{stage}.{name}"] = ns
    return latencies


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None


def _milliseconds_ns(text: str | None) -> int | None:
    try:
        value = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return round(value * 1e6) if 0 <= value <= _LONGEST_MS else None
