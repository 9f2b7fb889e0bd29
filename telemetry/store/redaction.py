"""Redaction: what people said is not stored unless requested. Of attributes that hold text, only those known to hold no
speech are stored.

A list of the names that carry speech would be out of date with each release of a framework, and what it misses is
stored permanently. So it is the other way round: numbers and flags are kept under any name, text only under a name that
is known to be a label (an id, a model, a state) of the framework that sent it, which its instrumentation scope
identifies. Anything else, including a service's own attributes, is left out. The names are data:
telemetry/data/text-labels.toml.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue

from telemetry.model import semconv
from telemetry.model.personal_data import is_pseudonym, label_without_personal_data
from telemetry.store.attribute_values import VALUE_TYPE
from telemetry.store.schema import ArrowTable, Table

# What carries words even in a family of labels: `voice.turn.transcript_pii`, `voice.asr.transcript`.
_WORDS: Final = re.compile(
    r"_pii$|(^|\.)pii\.|(^|[._])(transcripts?|text|prompt|instructions|messages?|arguments)(\.|$)"
)
# Figures under these names are personal data themselves: the number of a telephone, an account, a person.
_PERSONAL_FIGURES: Final = re.compile(
    r"(^|[._-])(phone|telephone|mobile|msisdn|caller_?id|(card|account|from|to|caller|callee)[._]?(number|no)|card|iban"
    r"|pan|ssn|tax_?id|birth_?(date|day)|date_of_birth|dob|pin|cvc|cvv|otp|passcode|passport)([._-](number|no))?$",
    re.IGNORECASE,
)
_ID: Final = re.compile(r"(^|[._])(s?ids?|identity)$")
# Texts of our own turns that an endpoint wrote; all the others are ours, or the corpus's.
_BY_ENDPOINT: Final = frozenset(
    semconv.TURN_PREFIX + field
    for field in (
        "cohort",
        "endpoint_header_values",
        "failure_code",
        "intent",
        "model",
        "response_id",
        "unknown_event_names",
    )
)
_REMEMBERED: Final = 50_000
_REMEMBERED_CHARS: Final = 200


class NameKind(IntEnum):
    """The kind of text under a name."""

    TEXT = 0  # may be what somebody said
    LABEL = 1
    ID = 2  # a label that identifies a call, session or item
    PERSON = 3  # names a person
    OWN = 4  # of our own callers: chosen or made by voiceprobe
    REASON = 5  # a sentence that says why something happened
    PERSONAL = 6  # the name holds personal data, or says that even figures under it are


_NO_LABELS: Final = frozenset([NameKind.TEXT, NameKind.PERSON, NameKind.PERSONAL])


@dataclass(frozen=True, slots=True)
class _Framework:
    name: str
    scopes: tuple[str, ...]
    labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class _TextLabels:
    prefixes: tuple[str, ...]
    labels: frozenset[str]
    persons: frozenset[str]
    reasons: frozenset[str]
    frameworks: tuple[_Framework, ...]


def _text_labels() -> _TextLabels:
    document: dict[str, Any] = tomllib.loads((files("telemetry") / "data" / "text-labels.toml").read_text("utf-8"))
    general = document["general"]
    frameworks = tuple(
        _Framework(table["name"], tuple(table["scopes"]), frozenset(table["labels"])) for table in document["framework"]
    )
    return _TextLabels(
        prefixes=tuple(general["prefixes"]),
        labels=frozenset(general["labels"]),
        persons=frozenset(general["persons"]),
        reasons=frozenset(general["reasons"]),
        frameworks=frameworks,
    )


_LABELS: Final = _text_labels()
LABELS: Final = _LABELS.labels.union(*(framework.labels for framework in _LABELS.frameworks))
_OWN_FRAMEWORK: Final = next(framework.name for framework in _LABELS.frameworks if semconv.SCOPE in framework.scopes)


@lru_cache(_REMEMBERED)
def framework_of(scope: str) -> str:
    """The framework to which an instrumentation scope belongs; empty for any other."""
    for framework in _LABELS.frameworks:
        if any(scope == name or scope.startswith(f"{name}.") for name in framework.scopes):
            return framework.name
    return ""


def kind_of_name(name: str, framework: str = "") -> NameKind:
    """Return the kind of the text under a name, as a framework sends it."""
    return kinds_of_names(framework)[name]


class _Kinds(dict[str, NameKind]):
    """The kinds of the names that a framework uses, computed on first use; bounded."""

    def __init__(self, framework: str) -> None:
        self._framework = framework

    def __missing__(self, name: str) -> NameKind:
        kind = _kind(name, self._framework)
        if len(name) <= _REMEMBERED_CHARS:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[name] = kind
        return kind


@cache
def kinds_of_names(framework: str) -> Mapping[str, NameKind]:
    """The kinds of all names that a framework, as `framework_of` names it, sends: for code that checks every
    attribute."""
    return _Kinds(framework)


def is_label(name: str, framework: str = "") -> bool:
    """Return whether text under this name is known to contain nothing that was spoken, written or answered."""
    return kind_of_name(name, framework) not in _NO_LABELS


def without_text(attributes: Mapping[str, object], framework: str = "") -> dict[str, object]:
    """The attributes that may be stored."""
    return {
        name: value
        for name, value in attributes.items()
        if not _holds_text(value) or is_label(name, framework) or is_person(name, value, framework)
    }


def is_person(name: str, value: object, framework: str = "") -> bool:
    """Return whether an attribute identifies a person, by a pseudonym only."""
    if kind_of_name(name, framework) is not NameKind.PERSON:
        return False
    return isinstance(value, str) and is_pseudonym(value)


def _kind(name: str, framework: str) -> NameKind:
    if label_without_personal_data(name) != name or _PERSONAL_FIGURES.search(name) is not None:
        return NameKind.PERSONAL
    if name in _LABELS.persons:
        return NameKind.PERSON
    if name in _LABELS.reasons:
        return NameKind.REASON
    is_family = name.startswith(_LABELS.prefixes) and _WORDS.search(name) is None
    if not is_family and name not in _LABELS.labels and name not in _labels_of(framework):
        return NameKind.TEXT
    if framework == _OWN_FRAMEWORK and (name.startswith("voice.") or name in _labels_of(framework)):
        return NameKind.LABEL if name in _BY_ENDPOINT else NameKind.OWN
    return NameKind.ID if _ID.search(name) is not None else NameKind.LABEL


@cache
def _labels_of(framework: str) -> frozenset[str]:
    return next((known.labels for known in _LABELS.frameworks if known.name == framework), frozenset())


def _holds_text(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_holds_text, cast("list[object]", value)))
    if isinstance(value, dict):
        return bool(value)  # its keys are text
    return isinstance(value, (str, bytes))


# The rules on the store's tables, inside the writer, so that no way in can store text. The sidecar has applied them
# already (telemetry.sidecar.privacy), and looked at the values; here is the last line of defense for whatever else
# writes to a store. Names of spans, events and scopes and trace states are kept: they say what was done, and not what
# was said. The message of a status is free text and is not.
_ArrowArray = Any
_Places = npt.NDArray[np.uint8]
_TRANSCRIPT: Final = "transcript_pii"
_PARTIALS: Final = "asr_partials_pii"
_USER: Final = "user_id"
_ATTRIBUTES: Final = "attributes"
_MAY_HOLD_TEXT: Final = ("string_value", "bytes_value", "array_value", "kvlist_value")


def table_without_text(table: Table, content: ArrowTable) -> ArrowTable:
    """The table without what people said."""
    if not content.num_rows:
        return content
    if table == "turns":
        texts = pa.array([[]] * content.num_rows, pa.list_(pa.string()))
        kept = _with(_with(content, _PARTIALS, texts), _TRANSCRIPT, pa.nulls(content.num_rows, pa.string()))
        return _with(kept, _USER, _pseudonyms(_whole(content, _USER))) if _USER in content.column_names else kept
    if table == "spans":
        return _spans_without_text(content)
    frameworks = _frameworks(content)
    encoded = _whole(content, _ATTRIBUTES).dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    known: dict[tuple[int | None, str], str | None] = {}
    kept: list[str | None] = []
    for place, framework in zip(encoded.indices.to_pylist(), frameworks, strict=True):
        if (place, framework) not in known:
            known[place, framework] = None if place is None else _points_without_text(texts[place], framework)
        kept.append(known[place, framework])
    return _with(content, _ATTRIBUTES, pa.array(kept, pa.string()))


def _pseudonyms(users: _ArrowArray) -> _ArrowArray:
    """The users that are pseudonyms; null for any other."""
    if users.null_count == len(users):
        return users
    encoded = users.dictionary_encode()
    kept = pa.array([name if is_pseudonym(name) else None for name in encoded.dictionary.to_pylist()], pa.string())
    return kept.take(encoded.indices)


def _frameworks(content: ArrowTable) -> list[str]:
    """The framework of each row, by its scope."""
    scopes = _whole(content, "scope_name").dictionary_encode()
    names = [framework_of(scope or "") for scope in scopes.dictionary.to_pylist()]
    return ["" if place is None else names[place] for place in scopes.indices.to_pylist()]


def _spans_without_text(spans: ArrowTable) -> ArrowTable:
    named = sorted({*(frameworks := _frameworks(spans)), ""})
    places = {name: place for place, name in enumerate(named)}
    row_frameworks = np.array([places[framework] for framework in frameworks], np.uint8)
    cleaned = _Pairs(named)
    spans = _with(spans, "span_attributes", cleaned.lists(_whole(spans, "span_attributes"), row_frameworks))
    resources = _whole(spans, "resource_attributes")
    spans = _with(spans, "resource_attributes", cleaned.lists(resources, np.full(len(resources), places[""], np.uint8)))
    for name in ("events", "links"):
        spans = _with(spans, name, cleaned.items(_whole(spans, name), row_frameworks))
    return _with(spans, "status_message", pa.array([""] * spans.num_rows, pa.string()))


def _with(content: ArrowTable, name: str, column: _ArrowArray) -> ArrowTable:
    place = content.schema.get_field_index(name)
    return content.set_column(place, content.schema.field(place), column) if place >= 0 else content


def _whole(content: ArrowTable, name: str) -> _ArrowArray:
    """A column as one chunk without an offset."""
    chunks = content.column(name).chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], content.schema.field(name).type)


class _Pairs:
    """Removes from attributes those that may not be stored. For each list, the index of its framework is given."""

    def __init__(self, frameworks: Sequence[str]) -> None:
        self._frameworks = frameworks

    def items(self, lists: _ArrowArray, framework_of_list: _Places) -> _ArrowArray:
        """Events or links, each with only the attributes that may be stored."""
        items = lists.values
        columns = [items.field(place) for place in range(items.type.num_fields)]
        place = items.type.get_field_index("attributes")
        columns[place] = self.lists(columns[place], np.repeat(framework_of_list, _lengths(lists)))
        kept = pa.StructArray.from_arrays(columns, fields=list(items.type))
        return pa.ListArray.from_arrays(lists.offsets, kept, type=lists.type)

    def lists(self, lists: _ArrowArray, framework_of_list: _Places) -> _ArrowArray:
        """Lists of attributes with only those that may be stored."""
        pairs = lists.values
        values = pairs.field(1)
        keep = ~np.logical_or.reduce([_is_valid(values, name) for name in _MAY_HOLD_TEXT])
        suspect = np.flatnonzero(~keep)
        if not len(suspect):
            return lists
        keys = pairs.field(0).take(pa.array(suspect)).dictionary_encode()
        names = keys.dictionary.to_pylist()
        pair_frameworks = np.repeat(framework_of_list, _lengths(lists))[suspect]
        labels = np.zeros(len(suspect), np.bool_)
        for place in np.unique(pair_frameworks).tolist():
            framework = self._frameworks[int(place)]
            are_labels = np.array([is_label(name, framework) for name in names], np.bool_)
            labels |= are_labels[keys.indices.to_numpy()] & (pair_frameworks == place)
        keep[suspect] = labels
        persons = [place for place, name in enumerate(names) if kind_of_name(name) is NameKind.PERSON]
        for row in suspect[np.isin(keys.indices.to_numpy(), persons)].tolist() if persons else ():
            keep[row] = is_person(pairs.field(0)[row].as_py(), values.field(0)[row].as_py())
        _keep_numbers(values, keep)
        if keep.all():
            return lists
        before = np.concatenate([[0], np.cumsum(keep)]).astype(np.int32)
        offsets = pa.array(before[lists.offsets.to_numpy()])
        return pa.ListArray.from_arrays(offsets, pairs.filter(pa.array(keep)), type=lists.type)


def _lengths(lists: _ArrowArray) -> npt.NDArray[np.int64]:
    return np.diff(lists.offsets.to_numpy()).astype(np.int64)


def _keep_numbers(values: _ArrowArray, keep: npt.NDArray[np.bool_]) -> None:
    """Keep also arrays and lists of pairs without text at any depth; the keys of pairs are text."""
    for name, holds in _NESTED.items():
        left_out = np.flatnonzero(~keep & _is_valid(values, name))
        contents = values.field(VALUE_TYPE.get_field_index(name)).take(pa.array(left_out)).to_pylist()
        keep[left_out] = [not holds(content) for content in contents]


def _is_valid(values: _ArrowArray, name: str) -> npt.NDArray[np.bool_]:
    column = values.field(VALUE_TYPE.get_field_index(name))
    if column.null_count == len(column):
        return np.zeros(len(column), np.bool_)
    return column.is_valid().to_numpy(zero_copy_only=False)


def _array_holds_text(content: bytes) -> bool:
    items = ArrayValue.FromString(content)
    items.DiscardUnknownFields()
    # Bytes that do not come back hold more than the message says: a value that was set twice, an unknown field.
    return items.SerializeToString() != content or any(map(_message_holds_text, items.values))


def _message_holds_text(value: AnyValue) -> bool:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return any(map(_message_holds_text, value.array_value.values))
    return kind in ("string_value", "bytes_value") or (kind == "kvlist_value" and bool(value.kvlist_value.values))


_NESTED: Final[dict[str, Callable[[bytes], bool]]] = {"array_value": _array_holds_text, "kvlist_value": bool}


def _points_without_text(attributes: str, framework: str) -> str:
    return orjson.dumps(without_text(cast("dict[str, Any]", orjson.loads(attributes)), framework)).decode()
