"""Events, causes and sentences of errors: broken protocols, `error` objects, refusals, connections that were closed.

The sentences say what the endpoint wrote and where it was asked. What to do about it is in `loadtest.protocols.advice`.
Pure.
"""

import html
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urljoin, urlsplit

import orjson

from loadtest.protocols.address import public_target
from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.failure import Failure, code_of, retry_after_of_fields
from loadtest.protocols.json_fields import Json, as_list, as_object, excerpt
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


# Where services put the sentence of an error, the most telling first; an object there has one of its own.
_MESSAGES: Final = (
    *("message", "detail", "error", "err_msg", "error_description", "description", "msg", "reason", "debug_message"),
    *("title", "details", "errors", "text"),
)
_CODES: Final = ("code", "type", "err_code", "status")
_DEEPEST: Final = 4
_MOST: Final = 5  # of a list of errors
_PAGE: Final = re.compile(r"<(?:!doctype|html|head|body|h1|p)\b", re.IGNORECASE)
_NO_WORDS: Final = re.compile(r"<(script|style|title)\b.*?(?:</\1>|$)|<!--.*?(?:-->|$)", re.IGNORECASE | re.DOTALL)
_TAG: Final = re.compile(r"<[^>]*>?")


def violation(raw_type: str, message: str, code: str) -> VoiceEvent:
    """Create the error event of a protocol violation."""
    return VoiceEvent(EventKind.ERROR, raw_type, message=message, failure=Failure("protocol_violation", code))


def endpoint_error(error: object, *otherwise: object) -> Failure:
    """Return the cause in an `error` object: its code, else its type, else `otherwise`; and the requested wait."""
    fields = as_object(error) or {}
    code = code_of(fields.get("code"), fields.get("type"), *otherwise)
    return Failure("endpoint_error", code, retry_after_of_fields(fields))


def error_message(error: object) -> str:
    """Return what an `error` says, which should be an object with a message but may be anything."""
    sentence, fields = _sentence_in(error), as_object(error) or {}
    code = next((value for key in _CODES if isinstance(value := fields.get(key), str) and value), None)
    if sentence is None:
        return code or f"an error that does not say what is wrong{_shown(error)}; its own log may say it"
    return f"{sentence} ({code})" if code is not None and code not in sentence else sentence


def answer_message(body: str) -> str:
    """Return what the body of a refusal says: a JSON error of any of the usual forms, a page's text, or plain text."""
    text = body.strip()
    try:
        decoded: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _page_text(text) if _PAGE.search(text) else text
    fields = as_object(decoded)
    error = fields.get("error") if fields is not None else None
    return error_message(error or decoded)


def _sentence_in(value: object, depth: int = 0) -> str | None:
    """Return the sentence in an error: of a text itself, of an object its message, of a list each of its errors."""
    if isinstance(value, str):
        return value.strip() or None
    if depth == _DEEPEST:
        return None
    fields = as_object(value)
    if fields is not None:
        sentences = (
            sentence for key in _MESSAGES if (sentence := _sentence_in(fields.get(key), depth + 1)) is not None
        )
        return next(sentences, None) if "loc" not in fields else _field_fault(fields, next(sentences, None))
    entries = as_list(value)
    sentences = (_sentence_in(entry, depth + 1) for entry in (entries or ())[:_MOST])
    return "; ".join(sentence for sentence in sentences if sentence is not None) or None


def _field_fault(fields: Json, sentence: str | None) -> str | None:
    """Return a fault of one field of the request, as FastAPI's validation reports it: where, and what."""
    place = fields.get("loc")
    parts = as_list(place)
    name = ".".join(str(part) for part in parts) if parts is not None else str(place)
    return sentence if not name else f"{name}: {sentence or 'not valid'}"


def _shown(error: object) -> str:
    if error is None or error == {}:
        return ""
    try:
        return f": {excerpt(orjson.dumps(error, default=str))}"
    except orjson.JSONEncodeError:  # nested deeper, or with a larger number, than JSON is written here
        return ""


def _page_text(page: str) -> str:
    """Return the words of a page, without its markup."""
    return " ".join(html.unescape(_TAG.sub(" ", _NO_WORDS.sub(" ", page))).split())
