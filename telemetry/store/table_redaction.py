"""The rules of `redaction` on the store's tables, inside the writer, so that no way in can store text.

The sidecar has applied them already, to the requests before they are logged (telemetry.sidecar.privacy), and what is
more has looked at the values; here is the last line of defense for whatever else writes to a store.

Names of spans, events and scopes and trace states are kept: they say what was done, and not what was said. The message
of a status is free text and is not.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue

from telemetry.model.personal_data import is_pseudonym
from telemetry.store.attribute_values import VALUE_TYPE
from telemetry.store.redaction import NameKind, framework_of, is_label, is_person, kind_of_name, without_text
from telemetry.store.schema import ArrowTable, Table

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
    """The users that are pseudonyms; none for any other."""
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
    of_row = np.array([places[framework] for framework in frameworks], np.uint8)
    cleaned = _Pairs(named)
    spans = _with(spans, "span_attributes", cleaned.lists(_whole(spans, "span_attributes"), of_row))
    resources = _whole(spans, "resource_attributes")
    spans = _with(spans, "resource_attributes", cleaned.lists(resources, np.full(len(resources), places[""], np.uint8)))
    for name in ("events", "links"):
        spans = _with(spans, name, cleaned.items(_whole(spans, name), of_row))
    return _with(spans, "status_message", pa.array([""] * spans.num_rows, pa.string()))


def _with(content: ArrowTable, name: str, column: _ArrowArray) -> ArrowTable:
    place = content.schema.get_field_index(name)
    return content.set_column(place, content.schema.field(place), column) if place >= 0 else content


def _whole(content: ArrowTable, name: str) -> _ArrowArray:
    """A column in one piece that begins at the beginning of its buffers."""
    chunks = content.column(name).chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], content.schema.field(name).type)


class _Pairs:
    """Leaves out of attributes those that may not be stored. Each list has the place of its framework in a list."""

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
        of_pair = np.repeat(framework_of_list, _lengths(lists))[suspect]
        labels = np.zeros(len(suspect), np.bool_)
        for place in np.unique(of_pair).tolist():
            framework = self._frameworks[int(place)]
            of_name = np.array([is_label(name, framework) for name in names], np.bool_)
            labels |= of_name[keys.indices.to_numpy()] & (of_pair == place)
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
    """Keep also those arrays and lists of pairs that hold no text at any depth; the keys of pairs are text."""
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
