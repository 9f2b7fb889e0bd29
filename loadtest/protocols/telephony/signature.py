"""Proof for an agent that a call comes from its provider: signatures and tokens, made from the token we are given.

Twilio and Plivo sign with the account's token, which is never sent; Telnyx and Vonage send a token; Exotel sends a key
and a token as a user and a password. Pure.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit, urlunsplit

Headers = tuple[tuple[str, str], ...]
TWILIO_HEADER = "X-Twilio-Signature"


def upgrade_headers(wire: str, url: str, token: str | None, nonce: str) -> Headers:
    """Return the headers by which a provider proves itself when it opens a stream; none without a token."""
    if token is None:
        return ()
    match wire:
        case "twilio":
            return ((TWILIO_HEADER, twilio_signature(token, url)),)
        case "plivo":
            return plivo_headers(token, url, nonce)
        case "telnyx":
            return (("x-telnyx-streaming-auth-token", token),)
        case "exotel":
            return (("Authorization", f"Basic {base64.b64encode(token.encode()).decode()}"),)
        case _:
            return (("Authorization", f"Bearer {token}"),)


def twilio_signature(token: str, url: str, form: Mapping[str, str] | None = None) -> str:
    """Return X-Twilio-Signature: HMAC-SHA1 of the URL followed by the form's names and values in the names' order."""
    signed = url + "".join(f"{name}{value}" for name, value in sorted((form or {}).items()))
    return base64.b64encode(hmac.new(token.encode(), signed.encode(), hashlib.sha1).digest()).decode()


def plivo_headers(token: str, url: str, nonce: str, form: Mapping[str, str] | None = None) -> Headers:
    """Return the headers with the signature of a GET, or with a form, of a POST."""
    signed = plivo_signature(token, url, nonce, form)
    return (("X-Plivo-Signature-V3", signed), ("X-Plivo-Signature-V3-Nonce", nonce))


def plivo_signature(token: str, url: str, nonce: str, form: Mapping[str, str] | None = None) -> str:
    """Return X-Plivo-Signature-V3: HMAC-SHA256 of the URL with its query in order, the form, a dot and the nonce.

    Where there is a form, a question mark ends a URL without a query, and a dot one with a query; its names and values
    follow in the names' order.
    """
    parts = urlsplit(url)
    query = "&".join(sorted(f"{name}={value}" for name, value in parse_qsl(parts.query, keep_blank_values=True)))
    signed = urlunsplit(parts._replace(query=query, fragment=""))
    if form:
        signed += "." if query else "?"
        signed += "".join(f"{name}{value}" for name, value in sorted(form.items()))
    signed += f".{nonce}"
    return base64.b64encode(hmac.new(token.encode(), signed.encode(), hashlib.sha256).digest()).decode()
