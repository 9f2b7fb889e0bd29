"""Spans as they were received, and a turn as the attributes of its `voice.turn` span and back: exact both ways.

Encoding omits what is unknown or at its default. Decoding accepts what other encoders make of the same value (an
OTLP/JSON integer is a string, a hand-written exporter sends 3.0 for 3) as long as only one reading is possible, and
refuses everything else by name. Fields of a newer schema are left out and counted, never guessed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
from msgspec import inspect

from telemetry.model import semconv
from telemetry.model.errors import TelemetryError
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn

SpanKind = Literal["Unspecified", "Internal", "Server", "Client", "Producer", "Consumer"]
StatusCode = Literal["Unset", "Ok", "Error"]
# Their place is the number that OTLP gives them.
SPAN_KINDS: Final[tuple[SpanKind, ...]] = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
STATUS_CODES: Final[tuple[StatusCode, ...]] = ("Unset", "Ok", "Error")


def _no_attributes() -> dict[str, object]:
    return {}


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event within a span, in wall-clock ns as stated by the span."""

    name: str
    unix_ns: int
    attributes: Mapping[str, object] = field(default_factory=_no_attributes)


@dataclass(frozen=True, slots=True)
class SpanLink:
    """Another span that a span points to: `trace_id` 32 and `span_id` 16 hex digits."""

    trace_id: str
    span_id: str
    trace_state: str = ""
    attributes: Mapping[str, object] = field(default_factory=_no_attributes)


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One stored span: times are wall-clock ns as the span said.

    The values of attributes are str, bool, int, float, bytes, None, lists and dicts of these; of a key that was sent
    twice the last value is stored here.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    service: str
    start_unix_ns: int
    end_unix_ns: int
    attributes: Mapping[str, object]
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    kind: SpanKind = "Unspecified"
    status_code: StatusCode = "Unset"
    status_message: str = ""
    trace_state: str = ""
    scope_name: str = ""
    scope_version: str = ""
    resource_attributes: Mapping[str, object] = field(default_factory=_no_attributes)


AttributeValue = str | bool | int | float | tuple[str, ...] | tuple[int, ...]

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_EXACT_IN_FLOAT: Final = 2**53
_DECIMAL_INT: Final = re.compile(r"-?[0-9]{1,4000}")
_OWN_IDENTITY: Final = ("trace_id", "span_id")  # the span itself has them


class TurnDecodeError(TelemetryError):
    """Raised for a `voice.turn` span that does not hold a turn. `attribute` is the name of the faulty one."""

    def __init__(self, attribute: str, problem: str) -> None:
        self.attribute = attribute
        super().__init__(f"attribute {attribute} {problem}")


@dataclass(frozen=True, slots=True)
class DecodedTurn:
    """A turn and the names under `voice.turn.` that this version does not know (a newer sender)."""

    turn: Turn
    unknown_fields: tuple[str, ...]


def turn_attributes(turn: Turn) -> dict[str, AttributeValue]:
    """Every known, non-default field as `voice.turn.<field>`, the schema version, and the GenAI names.

    An integer beyond 64 bits travels as its decimal text, since OTLP has no wider integer; text that is not valid
    Unicode (a lone surrogate) travels with U+FFFD in its place, since OTLP carries UTF-8 only.
    """
    attributes: dict[str, AttributeValue] = {semconv.ATTR_SCHEMA: semconv.SCHEMA_VERSION}
    for carrier, value in zip(_CARRIERS, msgspec.structs.astuple(turn), strict=True):
        if value is None or carrier is None:
            continue
        attribute, default, encode = carrier
        if value != default:
            attributes[attribute] = encode(value)
    attributes[semconv.GEN_AI_OPERATION_NAME] = "invoke_agent"
    attributes[semconv.GEN_AI_CONVERSATION_ID] = _utf8(turn.call_id)
    if (failure := turn.failure_code or turn.failure_kind) is not None:
        attributes[semconv.ERROR_TYPE] = _utf8(failure)
    if turn.model is not None:
        attributes[semconv.GEN_AI_REQUEST_MODEL] = _utf8(turn.model)
    ttft_ns = METRICS["llm_ttft"].value(turn)
    if ttft_ns is not None:
        attributes[semconv.GEN_AI_TIME_TO_FIRST_CHUNK_S] = ttft_ns / 1e9
    return attributes


def decode_turn(attributes: Mapping[str, object], trace_id: str, span_id: str) -> DecodedTurn:
    """The turn of a `voice.turn` span, and which fields of a newer schema were left out: `trace_id` 32 and `span_id` 16
    hex digits. Raises TurnDecodeError."""
    values: dict[str, object] = {"trace_id": trace_id, "span_id": span_id}
    unknown: list[str] = []
    for name, value in attributes.items():
        known = _DECODERS.get(name)
        if known is None:
            if name.startswith(semconv.TURN_PREFIX):
                unknown.append(name)
        elif value is not None:
            field_name, decode = known
            values[field_name] = decode(name, value)
    for required in _REQUIRED:
        if required.name not in values:
            raise TurnDecodeError(required.attribute, "is missing; a turn cannot do without it")
    return DecodedTurn(msgspec.convert(values, Turn), tuple(unknown))


def carried(value: AttributeValue) -> AttributeValue:
    """The value in a form that OTLP can carry: text as valid Unicode, an integer beyond 64 bits as text."""
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, tuple):
        return _encode_texts(value) if value and isinstance(value[0], str) else _encode_ints(value)
    return value if isinstance(value, (bool, float)) else _encode_int(value)


def _utf8(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _encode_text(value: object) -> AttributeValue:
    text = str(value)
    return text if text.isascii() else _utf8(text)


def _encode_int(value: object) -> AttributeValue:
    number = int(str(value)) if not isinstance(value, int) else value
    return number if _INT64_MIN <= number <= _INT64_MAX else str(number)


def _encode_float(value: object) -> AttributeValue:
    return float(str(value)) if not isinstance(value, (int, float)) else float(value)


def _encode_bool(value: object) -> AttributeValue:
    return bool(value)


def _encode_texts(value: object) -> AttributeValue:
    return tuple(_utf8(str(item)) for item in _items(value))


def _encode_ints(value: object) -> AttributeValue:
    numbers = [int(str(item)) if not isinstance(item, int) else item for item in _items(value)]
    # OTLP arrays of attributes hold one type: one wide number turns all of them into text.
    if all(_INT64_MIN <= number <= _INT64_MAX for number in numbers):
        return tuple(numbers)
    return tuple(str(number) for number in numbers)


def _items(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _decode_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TurnDecodeError(name, f"is {_shown(value)}, but text is expected")
    return value


def _decode_int(name: str, value: object) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool):
        raise TurnDecodeError(name, f"is {value}, but a whole number is expected")
    # Beyond 2**53 a float represents several integers.
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT_IN_FLOAT:
        return int(value)
    if isinstance(value, str) and _DECIMAL_INT.fullmatch(value):
        return int(value)
    raise TurnDecodeError(name, f"is {_shown(value)}, but a whole number is expected")


def _decode_count(name: str, value: object) -> int:
    number = _decode_int(name, value)
    if number < 0:
        raise TurnDecodeError(name, f"is {number}, but it cannot be negative")
    return number


def _decode_float(name: str, value: object) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise TurnDecodeError(name, f"is {_shown(value)}, but a number is expected")


def _decode_bool(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise TurnDecodeError(name, f"is {_shown(value)}, but true or false is expected")


def _decode_array(name: str, value: object) -> tuple[object, ...]:
    if not isinstance(value, (tuple, list)):
        raise TurnDecodeError(name, f"is {_shown(value)}, but an array is expected")
    return tuple(value)


def _decode_ints(name: str, value: object) -> tuple[int, ...]:
    return tuple(_decode_int(name, item) for item in _decode_array(name, value))


def _decode_texts(name: str, value: object) -> tuple[str, ...]:
    return tuple(_decode_text(name, item) for item in _decode_array(name, value))


def _decode_one_of(allowed: tuple[str, ...]) -> Callable[[str, object], str]:
    def decode(name: str, value: object) -> str:
        if isinstance(value, str) and value in allowed:
            return value
        raise TurnDecodeError(name, f"is {_shown(value)}, but one of {', '.join(allowed)} is expected")

    return decode


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    attribute: str
    required: bool
    default: object
    encode: Callable[[object], AttributeValue]
    decode: Callable[[str, object], object]


def _codec(kind: inspect.Type) -> tuple[Callable[[object], AttributeValue], Callable[[str, object], object]]:
    """Return the encoder and decoder of a field type. Raises TypeError for a type the schema has never had."""
    if isinstance(kind, inspect.UnionType):
        (kind,) = (part for part in kind.types if not isinstance(part, inspect.NoneType))
    if isinstance(kind, inspect.LiteralType):
        return _encode_text, _decode_one_of(tuple(str(value) for value in kind.values))
    if isinstance(kind, inspect.IntType):
        return _encode_int, _decode_count if kind.ge == 0 else _decode_int
    if isinstance(kind, inspect.VarTupleType):
        if isinstance(kind.item_type, inspect.IntType):
            return _encode_ints, _decode_ints
        return _encode_texts, _decode_texts
    if isinstance(kind, inspect.BoolType):
        return _encode_bool, _decode_bool
    if isinstance(kind, inspect.FloatType):
        return _encode_float, _decode_float
    if isinstance(kind, inspect.StrType):
        return _encode_text, _decode_text
    raise TypeError(
        f"a turn field of type {kind} has no form as an attribute; give it one in telemetry.model.turn_spans"
    )


def _fields() -> tuple[_Field, ...]:
    described = inspect.type_info(Turn)
    if not isinstance(described, inspect.StructType):
        raise TypeError("telemetry.model.turns.Turn is no msgspec struct")
    fields: list[_Field] = []
    for member in described.fields:
        if member.name in _OWN_IDENTITY:
            continue
        encode, decode = _codec(member.type)
        fields.append(
            _Field(member.name, semconv.TURN_PREFIX + member.name, member.required, member.default, encode, decode)
        )
    return tuple(fields)


_FIELDS: Final = _fields()
_REQUIRED: Final = tuple(field for field in _FIELDS if field.required)
_BY_ATTRIBUTE: Final = {field.attribute: field for field in _FIELDS}
_DECODERS: Final = {field.attribute: (field.name, field.decode) for field in _FIELDS}
# In the order of a turn's fields: attribute, default and encoding of each that its span carries as an attribute.
_CARRIERS: Final = tuple(
    None if name in _OWN_IDENTITY else (carrier.attribute, carrier.default, carrier.encode)
    for name in Turn.__struct_fields__
    for carrier in (_BY_ATTRIBUTE.get(semconv.TURN_PREFIX + name, _FIELDS[0]),)
)
# Every field of a turn that its span carries as an attribute.
CARRIED: Final = tuple(field.name for field in _FIELDS)
