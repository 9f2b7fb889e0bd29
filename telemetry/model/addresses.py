"""Hosts and addresses as written in URLs, without their credentials, and tokens as headers carry them. No sentence
of this module shows a secret."""

from ipaddress import IPv6Address, ip_address
from typing import Final

from telemetry.model.errors import ConfigError


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener on the host."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def is_unspecified(host: str) -> bool:
    """Return whether the host means every address of this machine: `0.0.0.0` and `::`."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def without_brackets(host: str) -> str:
    """The host as sockets take it: `[::1]` of a URL is `::1`."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def host_in_url(host: str) -> str:
    """The host as written in a URL or a `Host` header. The zone of an address, `fe80::1%eth0`, is percent-encoded."""
    return f"[{host.replace('%', '%25')}]" if ":" in host else host


def host_and_port(host: str, port: int) -> str:
    """`127.0.0.1:80` and `[::1]:80`."""
    return f"{host_in_url(host)}:{port}"


def local_host(host: str) -> str:
    """The host by which this machine reaches a listener on `host`: for every address, the loopback one of its kind."""
    if not is_unspecified(host):
        return host
    return "::1" if ":" in host else "127.0.0.1"


TOKEN_BYTES_MAX: Final = 4096
TOKEN_RULE: Final = f"a token has 1 to {TOKEN_BYTES_MAX} ASCII characters without spaces, in one line"


def is_token(text: str) -> bool:
    """Return whether a header can carry the text as a token."""
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
    """Return an address without its user and password, which come before an `@`; for sentences about any text."""
    if "@" not in address:
        return address
    scheme, separator, rest = address.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
