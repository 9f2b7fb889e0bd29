"""Access control: a bearer token or a client certificate, one of which is required for listening beyond loopback."""

import hmac
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import HTTPConnection

UNAUTHORIZED: Final = "a valid bearer token is required"
UNCERTIFIED: Final = "a client certificate is required"
# Whether the TLS connection of a request has a verified client certificate, in the state of the request.
CERTIFICATE_STATE: Final = "client_certificate"
_SCHEME: Final = "bearer "


@dataclass(frozen=True, slots=True)
class Denial:
    """The reason why a request is not admitted: the status and headers of the answer, and a sentence."""

    status: int
    sentence: str
    headers: dict[str, str] = field(default_factory=dict[str, str])


_NO_TOKEN: Final = Denial(401, UNAUTHORIZED, {"www-authenticate": "Bearer"})
_NO_CERTIFICATE: Final = Denial(403, UNCERTIFIED)


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials that requests must present: the token unless None, and a client certificate if one is required."""

    token: str | None = field(default=None, repr=False)
    requires_certificate: bool = False

    def denial(self, request: HTTPConnection) -> Denial | None:
        """Return why a request is not admitted, None if it is."""
        if self.requires_certificate and not getattr(request.state, CERTIFICATE_STATE, False):
            return _NO_CERTIFICATE
        return None if is_authorized(request.headers.get("authorization"), self.token) else _NO_TOKEN


def is_authorized(authorization: str | None, token: str | None) -> bool:
    """Return whether an Authorization header contains the token; no token configured means no authentication."""
    if token is None:
        return True
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        return False
    given = authorization[len(_SCHEME) :].strip()
    return hmac.compare_digest(given.encode(), token.encode())
