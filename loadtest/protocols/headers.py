"""Headers: those of requests that most wires send, and those of responses that say who answered. Pure.

Of a response, only the headers that are listed here are kept. One that could carry a secret or a cookie is not listed,
even on request.
"""

from collections.abc import Iterable
from typing import Final

from loadtest.errors import UsageError
from loadtest.protocols.address import public_target
from telemetry.model.foreign_text import one_line

MAX_VALUE_CHARS: Final = 200
# By what they say; names are in lower case.
REQUEST_IDS: Final = (
    "x-request-id",
    "x-client-request-id",
    "x-correlation-id",
    "request-id",
    "apim-request-id",
    "dg-request-id",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-amz-cf-id",
    "x-azure-ref",
    "x-cloud-trace-context",
    "x-ms-request-id",
    "x-vercel-id",
    "fly-request-id",
    "cf-ray",
    "traceresponse",
    "x-litellm-call-id",
    "x-portkey-trace-id",
    "cf-aig-log-id",
    "helicone-id",
)
WHO_ANSWERED: Final = (
    "server",
    "via",
    "x-served-by",
    "x-powered-by",
    "x-backend",
    "x-region",
    "x-ms-region",
    "x-amz-cf-pop",
    "x-envoy-decorator-operation",
    "openai-version",
)
CACHE_AND_ROUTE: Final = (
    "x-cache",
    "cf-cache-status",
    "x-litellm-cache-key",
    "x-litellm-model-group",
    "x-litellm-model-name",
    "x-litellm-model-id",
    "x-litellm-model-api-base",
    "x-litellm-attempted-fallbacks",
    "x-litellm-attempted-retries",
    "x-portkey-cache-status",
    "x-portkey-last-used-option-index",
    "x-portkey-retry-attempt-count",
    "cf-aig-cache-status",
    "cf-aig-step",
    "helicone-cache",
)
KEPT: Final = frozenset((*REQUEST_IDS, *WHO_ANSWERED, *CACHE_AND_ROUTE))


def kept_headers(headers: Iterable[tuple[str, str]], response: str) -> dict[str, str]:
    """Return the headers that are kept, by `response` (which one it was), a dot and the header's name.

    Of a header that comes several times, the values are joined as HTTP says; each is one line and bounded. Of an
    address, neither credentials nor the query are kept.
    """
    kept: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        if key in KEPT and value.strip():
            before = kept.get(f"{response}.{key}")
            kept[f"{response}.{key}"] = value.strip() if before is None else f"{before}, {value.strip()}"
    return {name: one_line(_without_credentials(value), MAX_VALUE_CHARS) for name, value in kept.items()}


def _without_credentials(value: str) -> str:
    return public_target(value) if "://" in value else value


def is_kept_header(name: str) -> bool:
    """Return whether a name is that of a header which `kept_headers` returned, of whichever response."""
    return name.partition(".")[2] in KEPT


TOKEN_VARIABLE: Final = "VOICEPROBE_TOKEN"  # noqa: S105 - the name of the variable, not a secret
# Set by the library itself; another header with the same name would break the handshake.
HANDSHAKE_HEADERS: Final = frozenset({"upgrade", "connection", "host"})


def bearer_headers(
    token: str | None, traceparent: str | None, *, name: str = "Authorization", scheme: str = "Bearer "
) -> tuple[tuple[str, str], ...]:
    """Return the headers that carry the token, a bearer token on most wires, and the trace, where there are any."""
    key = () if token is None else ((name, f"{scheme}{token}"),)
    return (*key, *(() if traceparent is None else (("traceparent", traceparent),)))


def header_fault(name: str, value: str) -> str | None:
    """Return why the opening handshake cannot carry this header, or None if it can. Never shows the value."""
    lower = name.lower()
    if lower in HANDSHAKE_HEADERS or lower.startswith("sec-websocket-"):
        return f"the header {name!r} belongs to the WebSocket handshake; leave it out"
    if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
        return f"{name!r} is not a header name"
    if not value.isascii() or not value.isprintable():
        return f"the value of the header {name!r} contains characters that a header cannot carry"
    return None


def checked_headers(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the headers unchanged. Raises UsageError for a header that cannot be sent."""
    for name, value in headers:
        if (fault := header_fault(name, value)) is not None:
            raise UsageError(fault)
    return headers
