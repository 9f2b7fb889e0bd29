"""Errors on this wire: what an `error` object says and asks for, and what the endpoint does that the wire forbids."""

from typing import Final

from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.failure import Failure, code_of, retry_after_of_fields
from loadtest.protocols.openai_realtime.fields import as_object

# Errors after which the endpoint will not go on, by `type` or `code`.
FATAL_ERRORS: Final = frozenset({"session_limit_reached", "session_expired", "invalid_api_key", "insufficient_quota"})
# The endpoint had finished, or had cancelled by itself, when our cancel arrived: a lost race, nobody's fault.
LOST_RACES: Final = frozenset({"response_cancel_not_active"})


def fault(raw_type: str, message: str, code: str) -> VoiceEvent:
    """Something that this wire forbids."""
    return VoiceEvent(EventKind.ERROR, raw_type, message=message, failure=Failure("protocol_violation", code))


def endpoint_error(error: object, *otherwise: object) -> Failure:
    """The cause in an `error` object: its code, else its type, else one of the others; and the wait it asks for."""
    fields = as_object(error) or {}
    code = code_of(fields.get("code"), fields.get("type"), *otherwise)
    return Failure("endpoint_error", code, retry_after_of_fields(fields))


def error_message(error: object) -> str:
    """What an `error` says: an object with a message as it should be, or whatever it is."""
    if isinstance(error, str):
        return error
    fields = as_object(error)
    if fields is not None:
        message, code = fields.get("message"), fields.get("code") or fields.get("type")
        if isinstance(message, str) and message:
            return f"{message} ({code})" if isinstance(code, str) and code else message
        if isinstance(code, str) and code:
            return code
    return "an error without a message"
