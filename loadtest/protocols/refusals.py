"""The sentences about an answer that is a refusal, and about a connection that the endpoint closed. Pure.

They say what the endpoint wrote and where it was asked. What to do about it is in `loadtest.protocols.advice`.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urljoin, urlsplit

from loadtest.protocols.address import public_target
from loadtest.protocols.error_objects import answer_message
from telemetry.model.foreign_text import one_line

Headers = Iterable[tuple[str, str]]
MESSAGE_CHARS: Final = 200
# Headers in which services give a reason, without a body or in addition to one.
_ERROR_HEADERS: Final = ("dg-error", "x-error", "x-error-message", "grpc-message", "www-authenticate")
_WEBSOCKET: Final = {"http": "ws", "https": "wss"}
_NAMES: Final = {
    1000: "normal",
    1001: "going away",
    1002: "protocol error",
    1003: "unsupported data",
    1007: "invalid data",
    1008: "policy violation",
    1009: "message too big",
    1010: "extension missing",
    1011: "internal error",
    1012: "service restart",
    1013: "try again later",
    1014: "bad gateway",
    3000: "unauthorized",
    3003: "forbidden",
    3008: "time-out",
}


def refusal_text(body: str, headers: Headers) -> str:
    """Return what a refusal says, on one line: in its body, else in a header; empty if it says nothing."""
    text = answer_message(body) if body.strip() not in ("", "{}", "null") else ""
    if not text:
        known = {name.lower(): value for name, value in headers}
        text = next((known[name] for name in _ERROR_HEADERS if known.get(name)), "")
    return one_line(text.strip(), MESSAGE_CHARS)


def refused_upgrade(status: int | None, reason: str, body: str, headers: Headers, url: str) -> str:
    """Return the sentence about an answer to an upgrade request that opens no WebSocket."""
    headers = tuple(headers)
    if status is not None and 300 <= status < 400 and (where := redirected_to(headers, url, is_websocket=True)):
        return f"the endpoint redirects the connection to {where} with HTTP {status} ({reason}), which is not followed"
    text = refusal_text(body, headers)
    with_status = f"with HTTP {status} " if status else ""
    repeats = text.lower() in ("", reason.lower(), f"{status} {reason}".lower())
    return f"the endpoint refused the connection {with_status}({reason}){'' if repeats else f': {text}'}"


def refused_request(asked: str, status: int, body: str, headers: Headers, url: str) -> str:
    """Return the sentence about a request whose answer is no success; `asked` is who answered: "the llm service"."""
    headers = tuple(headers)
    if 300 <= status < 400 and (where := redirected_to(headers, url, is_websocket=False)):
        return f"{asked} redirects to {where} with HTTP {status}, which is not followed"
    text = refusal_text(body, headers)
    return f"{asked} answered HTTP {status} at {public_target(url)}: {text or 'no body'}"


def redirected_to(headers: Headers, url: str, *, is_websocket: bool) -> str | None:
    """Return the address that a redirect leads to, without credentials and query; None without one."""
    location = next((value.strip() for name, value in headers if name.lower() == "location"), "")
    if not location:
        return None
    try:
        absolute = urljoin(_as_http(url), location)
        scheme = urlsplit(absolute).scheme
    except ValueError:
        return one_line(public_target(location), MESSAGE_CHARS)
    if is_websocket and scheme in _WEBSOCKET:
        absolute = _WEBSOCKET[scheme] + absolute[len(scheme) :]
    return one_line(public_target(absolute), MESSAGE_CHARS)


def _as_http(url: str) -> str:
    """Return the address with a scheme for which relative references are resolved."""
    return f"http{url[2:]}" if url.startswith(("ws:", "wss:")) else url


def closed_connection(code: int, reason: str) -> str:
    """Return the sentence about a connection that was closed with this code, and perhaps a reason."""
    name = _NAMES.get(code)
    named = f"code {code}" if name is None else f"code {code}, {name}"
    return f"the endpoint closed the call ({named}){f': {reason.strip()}' if reason.strip() else ''}"
