"""Access control: a bearer token, which is required for listening beyond loopback."""

import hmac
import ipaddress
from typing import Final

_SCHEME: Final = "bearer "


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_authorized(authorization: str | None, token: str | None) -> bool:
    """Whether an Authorization header contains the token; no token configured means no authentication."""
    if token is None:
        return True
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        return False
    given = authorization[len(_SCHEME) :].strip()
    return hmac.compare_digest(given.encode(), token.encode())
