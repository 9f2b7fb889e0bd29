"""Which headers of a user the opening handshake of a WebSocket can carry."""

from typing import Final

from loadtest.errors import UsageError

# What the library sets itself; anything else of the same name would break the handshake.
HANDSHAKE_HEADERS: Final = frozenset({"upgrade", "connection", "host"})


def header_fault(name: str, value: str) -> str | None:
    """Why the opening handshake cannot carry this header; None when it can. The value is never repeated."""
    lower = name.lower()
    if lower in HANDSHAKE_HEADERS or lower.startswith("sec-websocket-"):
        return f"the header {name!r} belongs to the WebSocket handshake; leave it out"
    if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
        return f"{name!r} is not a header name"
    if not value.isascii() or not value.isprintable():
        return f"the value of the header {name!r} holds characters that a header cannot carry"
    return None


def checked_headers(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The headers as they are. Raises UsageError for one that cannot be sent."""
    for name, value in headers:
        if (fault := header_fault(name, value)) is not None:
            raise UsageError(fault)
    return headers
