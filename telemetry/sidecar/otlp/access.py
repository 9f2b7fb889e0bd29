"""Who may send: loopback is open, anything wider wants a bearer token."""

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


def may_enter(authorization: str | None, token: str | None) -> bool:
    """Whether an Authorization header carries the token; everybody may enter where there is none."""
    if token is None:
        return True
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        return False
    given = authorization[len(_SCHEME) :].strip()
    return hmac.compare_digest(given.encode(), token.encode())
