"""Events and causes of errors: violations of a protocol, and the `error` objects that endpoints send."""

import html
import re
from typing import Final

import orjson

from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.failure import Failure, code_of, retry_after_of_fields
from loadtest.protocols.json_fields import Json, as_list, as_object, excerpt

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
        found = (sentence for key in _MESSAGES if (sentence := _sentence_in(fields.get(key), depth + 1)) is not None)
        return next(found, None) if "loc" not in fields else _field_fault(fields, next(found, None))
    entries = as_list(value)
    found = (_sentence_in(entry, depth + 1) for entry in (entries or ())[:_MOST])
    return "; ".join(sentence for sentence in found if sentence is not None) or None


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
