"""Events and causes of errors: violations of a protocol, and the `error` objects that endpoints send."""

from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.failure import Failure, code_of, retry_after_of_fields
from loadtest.protocols.json_fields import as_object


def violation(raw_type: str, message: str, code: str) -> VoiceEvent:
    """Create the error event of a protocol violation."""
    return VoiceEvent(EventKind.ERROR, raw_type, message=message, failure=Failure("protocol_violation", code))


def endpoint_error(error: object, *otherwise: object) -> Failure:
    """Return the cause in an `error` object: its code, else its type, else `otherwise`; and the requested wait."""
    fields = as_object(error) or {}
    code = code_of(fields.get("code"), fields.get("type"), *otherwise)
    return Failure("endpoint_error", code, retry_after_of_fields(fields))


def error_message(error: object) -> str:
    """Return the message of an `error`, which should be an object with a message but may be anything."""
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
