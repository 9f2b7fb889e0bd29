"""Secrets on their way into a header, and addresses that may hold some. No sentence of this module shows one."""

from typing import Final

from telemetry.model.errors import ConfigError

TOKEN_BYTES_MAX: Final = 4096
TOKEN_RULE: Final = f"a token has 1 to {TOKEN_BYTES_MAX} ASCII characters without spaces, in one line"


def is_token(text: str) -> bool:
    """Whether a header can carry the text as a token."""
    return 0 < len(text) <= TOKEN_BYTES_MAX and all("!" <= character <= "~" for character in text)


def checked_token(text: str, place: str) -> str:
    """Return a token without the white space around it: a secret read from a file often ends with its line.

    Raises ConfigError, which names the `place` and does not show the token.
    """
    token = text.strip()
    if not is_token(token):
        raise ConfigError(place, [f"{TOKEN_RULE}; make one with: openssl rand -hex 32"])
    return token


def without_credentials(address: str) -> str:
    """Return an address without its user and password, which stand before an `@`; for sentences about any text."""
    if "@" not in address:
        return address
    scheme, separator, rest = address.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
