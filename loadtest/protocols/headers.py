"""The headers of requests: those that most wires send, and which of a user's a WebSocket handshake can carry."""

from typing import Final

from loadtest.errors import UsageError

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
