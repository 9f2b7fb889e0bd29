"""The target of a bench: its address, its wire, its name, and its key, which is in memory only and never shown."""

from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from loadtest.errors import UsageError
from loadtest.protocols.address import Address, parse_address, public_target

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
    found = next(((name, value) for name in names if (value := environment.get(name, "").strip())), None)
    if found is None:
        return None
    if not found[1].isascii() or not found[1].isprintable():
        raise UsageError(f"{found[0]} contains characters that a header cannot carry")
    return Key(found[1])
