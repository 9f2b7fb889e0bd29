"""The common parts of the providers' media streams, and the differences of each: a row of a table. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import orjson

from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.json_fields import Json, MalformedError, required_text

# What an agent's message asks of the provider.
Request = Literal["audio", "mark", "clear", "unused"]
Message = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedCall:
    """The facts of one call that the provider tells the agent."""

    digits: str  # 32 hexadecimal ones, which the ids are made of
    stream_id: str
    call_id: str
    account_id: str
    from_number: str
    to_number: str
    encoding: str  # as the provider calls it
    format: AudioFormat
    parameters: Mapping[str, str]  # custom ones, the trace among them


@dataclass(frozen=True, slots=True, kw_only=True)
class TelephonyWire:
    """One provider's messages. Members are named as they are on the wire; None where the wire has no such member.

    `media_head` has a `%d` for the sequence number, the chunk and the time in ms, in this order; the payload follows.
    """

    name: str
    provider: str
    encodings: Mapping[str, Literal["pcm16", "pcmu", "pcma"]]  # by the provider's names
    rates_hz: tuple[int, ...]  # of PCM; the first one is the default
    frame_ms: int = 20
    stream_key: str | None = None  # of the stream's id, in both directions
    sequence_key: str | None = None
    sequence_is_text: bool = True
    type_key: str = "event"
    requests: Mapping[str, Request]
    marks_outlive_clear: bool = True  # whether a mark is answered although its audio was cleared
    binary_audio: bool = False
    # The ids that the provider gives to a stream and a call, from 32 hexadecimal digits.
    ids: Callable[[str], tuple[str, str]]
    greeting: Callable[[str | None], Message] | None = None  # before `start`; takes the token
    start: Callable[[StreamedCall], Message]  # without its sequence number
    stop: Callable[[StreamedCall], Message] | None = None
    dtmf: Callable[[str], Message]
    media_head: Callable[[StreamedCall], bytes] | None = None
    mark_name: Callable[[Json], str]
    mark_answer: Callable[[str], Message]
    clear_answer: Message | None = None
    declared_format: Callable[[Json], AudioFormat] | None = None  # of the agent's audio, where its messages state it
    most_parameter_bytes: int | None = None  # of names and values together
    reserved: str = ""  # characters that parameters cannot contain


def encoded(message: Message) -> str:
    """Return a message as JSON text."""
    return orjson.dumps(message).decode()


def template(text: str, call: StreamedCall, stream_key: str) -> bytes:
    """Return the beginning of a media message with the stream's id in it; `text` has the three `%d`."""
    stream_id = orjson.dumps({stream_key: call.stream_id})[1:-1].replace(b"%", b"%%")
    return text.encode().replace(b"STREAM", stream_id)


def nested_mark_name(fields: Json) -> str:
    """Return the name in `{"mark": {"name": …}}`. Raises MalformedError."""
    return required_text(required_object(fields, "mark"), "name")


def required_object(fields: Json, key: str) -> Json:
    """Return the object at `key`. Raises MalformedError if it is missing or has another type."""
    inner = fields.get(key)
    if isinstance(inner, dict):
        return inner  # pyright: ignore[reportUnknownVariableType] - keys of decoded JSON are strings
    raise MalformedError(f"{key!r} is {'not an object' if key in fields else 'missing; it should be an object'}")


PAYLOAD_END: Final = b'"}}'
