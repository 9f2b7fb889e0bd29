"""Detects that only one of caller and endpoint uses TLS. Pure."""

from typing import Final

from loadtest.protocols.failure import Failure

NOT_TLS: Final = Failure("tls", "not_tls")
TLS_REQUIRED: Final = Failure("tls", "tls_required")
_ALERT: Final = 0x15
_FIRST_RECORDS: Final = (_ALERT, 0x16)  # what a TLS server sends first: an alert or its handshake (RFC 8446, 5.1)
_MAJOR_VERSION: Final = 0x03


def cannot_be_tls(first: bytes) -> bool:
    """Return whether a server that sends these first bytes cannot be a TLS server.

    Two bytes decide; one is often enough.
    """
    return bool(first) and (first[0] not in _FIRST_RECORDS or (len(first) > 1 and first[1] != _MAJOR_VERSION))


def is_alert(first: bytes) -> bool:
    """Return whether these first bytes begin a TLS alert, with which a TLS server answers a plain upgrade request."""
    return first[:1] == bytes((_ALERT,)) and not cannot_be_tls(first)


def not_tls_sentence(server: str, other_scheme: str) -> str:
    """Return the error for an answer that is not TLS.

    Here and below, `server` is HOST:PORT, and `other_scheme` the one that differs in nothing but TLS.
    """
    return f"the server at {server} does not speak TLS: use {other_scheme}://"


def tls_required_sentence(server: str, other_scheme: str) -> str:
    """Return the error for a plain request that was answered with a TLS alert."""
    return f"the server at {server} speaks TLS: use {other_scheme}://"


def hint(server: str, other_scheme: str, *, tls: bool) -> str:
    """Return what to try when the server has sent nothing that shows whether it uses TLS."""
    if tls:
        return f"if the server at {server} does not speak TLS, use {other_scheme}://"
    return f"if the server at {server} speaks TLS, use {other_scheme}://"
