"""Recognizes a caller and an endpoint of which one expects TLS and the other does not. Pure."""

from typing import Final

from loadtest.protocols.failure import Failure

NOT_TLS: Final = Failure("tls", "not_tls")
TLS_REQUIRED: Final = Failure("tls", "tls_required")
_ALERT: Final = 0x15
_FIRST_RECORDS: Final = (_ALERT, 0x16)  # what a TLS server sends first: an alert or its handshake (RFC 8446, 5.1)
_MAJOR_VERSION: Final = 0x03


def cannot_be_tls(first: bytes) -> bool:
    """Whether a server whose first bytes these are does not speak TLS. Two bytes tell for sure, often one does."""
    return bool(first) and (first[0] not in _FIRST_RECORDS or (len(first) > 1 and first[1] != _MAJOR_VERSION))


def is_alert(first: bytes) -> bool:
    """Whether these first bytes are a TLS alert, which is how a TLS server answers a plain upgrade request."""
    return first[:1] == bytes((_ALERT,)) and not cannot_be_tls(first)


def not_tls_sentence(server: str) -> str:
    """For an answer that is not TLS; `server` is HOST:PORT, here and below."""
    return f"the server at {server} does not speak TLS: use ws://"


def tls_required_sentence(server: str) -> str:
    """For a TLS alert as the answer to a plain request."""
    return f"the server at {server} speaks TLS: use wss://"


def hint(server: str, *, tls: bool) -> str:
    """What to try where the server has not said a byte that would tell."""
    if tls:
        return f"if the server at {server} does not speak TLS, use ws://"
    return f"if the server at {server} speaks TLS, use wss://"
