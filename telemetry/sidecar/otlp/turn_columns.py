"""Turns as columns, from the attributes of their spans, without an object for each attribute.

A field whose attribute has the type that our own encoder gives it is put into its column as it is. A turn with anything
else (an integer as text, a repeated key, a text to be made plain, a value out of range) is decoded by `decode_turn`, on
its own: the result is in every case what `decode_turn` says.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import ArrayValue, KeyValueList

from telemetry.model import semconv
from telemetry.model.contradictions import DURATIONS, IN_ORDER, STAGES, of_timestamps, without_contradictions
from telemetry.model.foreign_text import one_line
from telemetry.model.service_spans import WHOLE_TURN_ATTRIBUTES
from telemetry.model.turn_spans import CARRIED, TurnDecodeError, decode_turn
from telemetry.model.turn_texts import longest_chars, with_plain_texts
from telemetry.model.turns import Turn
from telemetry.sidecar.otlp import attributes as values
from telemetry.sidecar.otlp.arrow_messages import ARRAY, BOOL, DOUBLE, INT, STRING, ArrowArray, Bits, compute, kinds
from telemetry.sidecar.otlp.span_columns import Mask, Places, lengths
from telemetry.store.schema import INTEGER_LIMIT, TURN_FIELDS, ArrowTable, fits, turns_table
from telemetry.store.turn_metrics import with_metrics

_FIELD_OF: Final = {semconv.TURN_PREFIX + name: place for place, name in enumerate(CARRIED)}
_NOT_OF_A_TURN: Final = -1
_UNKNOWN_FIELD: Final = -2
_PLACE_IN_VALUE: Final = {STRING: 0, BOOL: 1, INT: 2, DOUBLE: 3, ARRAY: 4}
_PRINTABLE_ASCII: Final = (0x20, 0x7E)


@dataclass(slots=True)
class TurnSpans:
    """The `voice.turn` spans of a group: ids as hex text, lists of KeyValue, what each value holds, and the items of
    those that hold an array, in their order."""

    trace_ids: ArrowArray
    span_ids: ArrowArray
    attributes: ArrowArray
    kinds: Bits
    items: ArrowArray


@dataclass(slots=True)
class DecodedTurns:
    """`turns` in the order of their spans; `reasons` by the place of a span that holds no turn that can be stored.
    `held` says of each attribute whether the row of its turn holds it exactly, `of_services` which spans are not whole
    turns but those of a service of one's own (see `telemetry.model.service_spans`)."""

    turns: ArrowTable
    held: Mask
    reasons: dict[int, str] = field(default_factory=dict[int, str])
    of_services: list[int] = field(default_factory=list[int])
    unknown_fields: Counter[str] = field(default_factory=Counter[str])


@dataclass(frozen=True, slots=True)
class _Column:
    """A field of a turn: which kind of value is taken as it is, and within which limits."""

    name: str
    kind: int
    item_kind: int
    required: bool
    least: int
    allowed: ArrowArray | None
    default: object


def _columns() -> tuple[_Column, ...]:
    described = msgspec.inspect.type_info(Turn)
    if not isinstance(described, msgspec.inspect.StructType):  # pragma: no cover - Turn is a struct
        raise TypeError("Turn is not a struct")
    by_name = {each.name: each for each in described.fields}
    return tuple(_column(by_name[name]) for name in CARRIED)


def _column(of_turn: msgspec.inspect.Field) -> _Column:
    kind = of_turn.type
    if isinstance(kind, msgspec.inspect.UnionType):
        (kind,) = (part for part in kind.types if not isinstance(part, msgspec.inspect.NoneType))
    item_kind, allowed, least = 0, None, 1 - INTEGER_LIMIT
    if isinstance(kind, msgspec.inspect.VarTupleType):
        bits, item_kind = ARRAY, INT if isinstance(kind.item_type, msgspec.inspect.IntType) else STRING
    elif isinstance(kind, msgspec.inspect.IntType):
        bits, least = INT, least if kind.ge is None else kind.ge
    elif isinstance(kind, msgspec.inspect.LiteralType):
        bits, allowed = STRING, pa.array([str(value) for value in kind.values])
    elif isinstance(kind, msgspec.inspect.BoolType):
        bits = BOOL
    else:
        bits = DOUBLE if isinstance(kind, msgspec.inspect.FloatType) else STRING
    return _Column(of_turn.name, bits, item_kind, of_turn.required, least, allowed, of_turn.default)


_COLUMNS: Final = _columns()
_PLACE_OF_FIELD: Final = {column.name: place for place, column in enumerate(_COLUMNS)}
_KINDS: Final = np.array([column.kind for column in _COLUMNS], np.uint8)
_REQUIRED: Final = [place for place, column in enumerate(_COLUMNS) if column.required]


def decode_turns(spans: TurnSpans) -> DecodedTurns:
    """The turns of `voice.turn` spans, as `decode_turn` reads each."""
    entries = _Entries(spans)
    plain = entries.plain()
    found = DecodedTurns(pa.table({}), np.zeros(len(entries.row), np.bool_))
    places = np.flatnonzero(plain)
    quick = with_metrics(_table(spans, entries, places))
    found.held[entries.held(plain)] = True
    slow: list[Turn] = []
    order: list[int] = []
    for row in np.flatnonzero(~plain).tolist():
        if (turn := _decoded(spans, row, found)) is not None:
            slow.append(turn)
            order.append(row)
    found.unknown_fields.update(one_line(key) for _, key in entries.unknown(plain))
    if not slow:
        found.turns = quick
    else:
        together = pa.concat_tables([quick, turns_table(slow)])
        found.turns = together.take(pa.array(np.argsort([*places.tolist(), *order], kind="stable")))
    return found


class _Entries:
    """The attributes of the spans, flattened: of which span (`row`) and field (`column`) each is."""

    def __init__(self, spans: TurnSpans) -> None:
        self._spans = spans
        self.count = len(spans.attributes)
        self.values = spans.attributes.values.field(1)
        sizes = lengths(spans.attributes)
        self.row = np.repeat(np.arange(self.count), sizes)
        encoded = spans.attributes.values.field(0).dictionary_encode()
        self._keys: list[str] = encoded.dictionary.to_pylist()
        self._codes = encoded.indices.to_numpy()
        of_key = np.array([_column_of(key) for key in self._keys] or [_NOT_OF_A_TURN], np.int64)
        self.column = of_key[self._codes] if len(self._codes) else np.zeros(0, np.int64)
        self._known = self.column >= 0
        # Where the value of each field stands, by column and row; -1 where the span does not have it.
        self.at = np.full((len(_COLUMNS), self.count), -1, np.int64)
        known = np.flatnonzero(self._known)
        self.at[self.column[known], self.row[known]] = known
        self.item_list = np.cumsum(spans.kinds == ARRAY) - 1

    def plain(self) -> Mask:
        """Which spans have only attributes that can be put into columns as they are."""
        plain = np.ones(self.count, np.bool_)
        known = np.flatnonzero(self._known)
        column, row = self.column[known], self.row[known]
        plain[row[self._spans.kinds[known] != _KINDS[column]]] = False
        times = np.bincount(column * self.count + row, minlength=1)
        plain[np.flatnonzero(times > 1) % max(self.count, 1)] = False
        for place in _REQUIRED:
            plain &= self.at[place] >= 0
        self._check_numbers(plain)
        self._check_texts(plain)
        self._check_lists(plain)
        self._check_moments(plain)
        return plain

    def held(self, plain: Mask) -> Places:
        """The attributes that the row of their turn holds exactly: a default comes back as no attribute at all."""
        known = np.flatnonzero(self._known & plain[self.row])
        return known[~self._is_default(known)]

    def _is_default(self, known: Places) -> Mask:
        column = self.column[known]
        default = np.zeros(len(known), np.bool_)
        for place in np.unique(column).tolist():
            if _COLUMNS[place].default == ():
                of_column = np.flatnonzero(column == place)
                default[of_column] = lengths(self._spans.items)[self.item_list[known[of_column]]] == 0
            elif isinstance(_COLUMNS[place].default, str):
                of_column = np.flatnonzero(column == place)
                texts = self.values.field(0).take(pa.array(known[of_column]))
                default[of_column] = compute.equal(texts, _COLUMNS[place].default).to_numpy(zero_copy_only=False)
        return default

    def unknown(self, plain: Mask) -> set[tuple[int, str]]:
        """The rows and names of fields of a newer sender; the others' are counted when they are decoded."""
        found = np.flatnonzero((self.column == _UNKNOWN_FIELD) & plain[self.row])
        return {(int(self.row[place]), self._keys[self._codes[place]]) for place in found}

    def _check_numbers(self, plain: Mask) -> None:
        places = [place for place, column in enumerate(_COLUMNS) if column.kind == INT]
        at = self.at[places]
        numbers = _filled(self.values.field(2))[at] if len(self.row) else np.zeros(at.shape, np.int64)
        least = np.array([_COLUMNS[place].least for place in places])[:, None]
        plain[((at >= 0) & ((numbers < least) | (numbers >= INTEGER_LIMIT))).any(axis=0)] = False

    def _check_moments(self, plain: Mask) -> None:
        """Turns with a moment or a duration that may not be are read one by one (telemetry.model.contradictions)."""
        numbers = _filled(self.values.field(2)) if len(self.row) else np.zeros(1, np.int64)

        def of(field: str) -> tuple[npt.NDArray[np.int64], Mask]:
            at = self.at[_PLACE_OF_FIELD[field]]
            return np.where(at >= 0, numbers[at], 0), at >= 0

        began, _ = of("started_perf_ns")
        speech, has_speech = of("speech_start_perf_ns")
        began = np.where(has_speech, np.minimum(began, speech), began)
        for name in STAGES:
            moment, known = of(f"{name}_perf_ns")
            plain[known & (moment < began)] = False
        for earlier, later in IN_ORDER:
            (first, has_first), (second, has_second) = of(f"{earlier}_perf_ns"), of(f"{later}_perf_ns")
            plain[has_first & has_second & (second < first)] = False
        for name in DURATIONS:
            duration, known = of(name)
            plain[known & (duration < 0)] = False

    def _check_texts(self, plain: Mask) -> None:
        texts = np.flatnonzero(self._known & (self._spans.kinds == STRING))
        for place in _not_plain(self.values.field(0), texts, self.column).tolist():
            plain[self.row[place]] = False
        for place, column in enumerate(_COLUMNS):
            if column.allowed is None:
                continue
            present = np.flatnonzero((self.at[place] >= 0) & plain)
            found = self.values.field(0).take(pa.array(self.at[place][present]))
            plain[present] &= compute.is_in(found, column.allowed).to_numpy(zero_copy_only=False)

    def _check_lists(self, plain: Mask) -> None:
        items = self._spans.items
        if not len(items.values):
            return
        bits = kinds(items.values)
        of_list = np.repeat(np.arange(len(items)), lengths(items))
        for item_kind in (INT, STRING):
            wrong = bits != item_kind
            if item_kind == INT:
                numbers = _filled(items.values.field(2))
                # Of the lists of numbers those of gaps alone can be wrong below zero: such a turn is read by itself.
                wrong |= (numbers < 0) | (numbers >= INTEGER_LIMIT)
            else:
                wrong[_not_plain(items.values.field(0), np.flatnonzero(~wrong), None)] = True
            bad_list = np.zeros(len(items), np.bool_)
            bad_list[of_list[wrong]] = True
            for place, column in enumerate(_COLUMNS):
                if column.item_kind == item_kind:
                    present = np.flatnonzero((self.at[place] >= 0) & plain)
                    plain[present] &= ~bad_list[self.item_list[self.at[place][present]]]


def _column_of(key: str) -> int:
    if not key.startswith(semconv.TURN_PREFIX):
        return _NOT_OF_A_TURN
    return _FIELD_OF.get(key, _UNKNOWN_FIELD)


def _filled(numbers: ArrowArray) -> npt.NDArray[np.int64]:
    # Null numbers lie in the buffer with any value; who reads them asks for the kind first.
    return np.frombuffer(numbers.buffers()[1], np.int64)[numbers.offset : numbers.offset + len(numbers)]


def _not_plain(texts: ArrowArray, places: Places, column_of: Places | None) -> Places:
    """The places of texts that are not stored as they are: with control characters, or too long."""
    found = texts.take(pa.array(places))
    sizes = lengths(found)
    raw = np.frombuffer(found.buffers()[2] or b"", np.uint8)
    odd = (raw < _PRINTABLE_ASCII[0]) | (raw > _PRINTABLE_ASCII[1])
    suspect = sizes > longest_chars("")
    if odd.any():
        before = np.concatenate([[0], np.cumsum(odd)])
        ends = np.cumsum(sizes)
        suspect |= before[ends] > before[ends - sizes]
    changed = [
        place
        for place in np.flatnonzero(suspect).tolist()
        if one_line(text := found[place].as_py(), _longest(column_of, places[place])) != text
    ]
    return places[changed]


def _longest(column_of: Places | None, place: int) -> int:
    return longest_chars("" if column_of is None else _COLUMNS[column_of[place]].name)


def _table(spans: TurnSpans, entries: _Entries, rows: Places) -> ArrowTable:
    """The fields of the turns of these spans, all of which are plain."""
    taken = pa.array(rows)
    columns: dict[str, ArrowArray] = {"trace_id": spans.trace_ids.take(taken), "span_id": spans.span_ids.take(taken)}
    for place, column in enumerate(_COLUMNS):
        at = entries.at[place][rows]
        kind = TURN_FIELDS[column.name]
        if not (at >= 0).any():
            columns[column.name] = _defaults(column, kind, len(rows))
        elif column.kind == ARRAY:
            columns[column.name] = _list_column(spans.items, entries, at, column)
        else:
            source = entries.values.field(_PLACE_IN_VALUE[column.kind])
            found = source.take(pa.array(at, mask=at < 0))
            columns[column.name] = (
                found if column.default in (None, msgspec.NODEFAULT) else found.fill_null(column.default)
            )
    return pa.table({name: columns[name] for name in TURN_FIELDS}, schema=pa.schema(list(TURN_FIELDS.items())))


def _defaults(column: _Column, kind: Any, count: int) -> ArrowArray:
    if column.default in (None, msgspec.NODEFAULT):
        return pa.nulls(count, kind)
    return pa.array([column.default] * count, kind)


def _list_column(items: ArrowArray, entries: _Entries, at: Places, column: _Column) -> ArrowArray:
    # One empty list more, for the turns that do not have the field.
    offsets = np.append(np.frombuffer(items.buffers()[1], np.int32)[: len(items) + 1], 0)
    offsets[-1] = offsets[-2]
    child = items.values.field(_PLACE_IN_VALUE[column.item_kind])
    lists = pa.ListArray.from_arrays(pa.array(offsets), child)
    return lists.take(pa.array(np.where(at >= 0, entries.item_list[at], len(items))))


def _decoded(spans: TurnSpans, row: int, found: DecodedTurns) -> Turn | None:
    """The turn of one span by the exact way; None when it holds none that can be stored, with a reason, and for a
    service's own span, which is assembled with those below it."""
    span_id = spans.span_ids[row].as_py()
    attributes = {pair["key"]: _value(pair["value"]) for pair in spans.attributes[row].as_py()}
    if WHOLE_TURN_ATTRIBUTES.isdisjoint(attributes):
        found.of_services.append(row)
        return None
    try:
        decoded = decode_turn(attributes, spans.trace_ids[row].as_py(), span_id)
    except TurnDecodeError as error:
        found.reasons[row] = f"span {span_id}: {error}"
        return None
    if not fits(decoded.turn):
        found.reasons[row] = f"span {span_id}: an integer of the turn is too large to store (62 bits)"
        return None
    found.unknown_fields.update(map(one_line, decoded.unknown_fields))
    return with_plain_texts(without_contradictions(decoded.turn, of_timestamps(decoded.turn)))


def _value(stored: dict[str, Any] | None) -> object:
    for name, content in (stored or {}).items():
        if content is None:
            continue
        if name == "array_value":
            return [values.value_from_protobuf(item) for item in ArrayValue.FromString(content).values]
        if name == "kvlist_value":
            return values.from_protobuf(KeyValueList.FromString(content).values)
        return content
    return None
