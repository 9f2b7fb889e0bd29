"""Checks which of a user's headers the opening handshake of a WebSocket can carry."""

from typing import Final

from loadtest.errors import UsageError

# Set by the library itself; another header with the same name would break the handshake.
HANDSHAKE_HEADERS: Final = frozenset({"upgrade", "connection", "host"})


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
