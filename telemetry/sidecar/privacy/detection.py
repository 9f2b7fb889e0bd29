"""Which spans of a record batch hold anything that may not be stored, found a column at a time.

Most requests hold nothing of it, and are logged as they came. Of most others only attributes are left out. Any other
span that is found here is cleaned message by message (`messages.clean_span`); one that is not found must be such that
cleaning would change nothing of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.model.personal_data import labels
from telemetry.model.personal_data.numbers import is_card
from telemetry.sidecar.otlp.arrow_messages import (
    ARRAY,
    BYTES,
    DOUBLE,
    INT,
    KVLIST,
    STRING,
    ArrowArray,
    Bits,
    compute,
    kinds,
)
from telemetry.sidecar.otlp.span_columns import Mask, Places, any_of_list, lengths
from telemetry.sidecar.otlp.span_reading import ReadSpans
from telemetry.sidecar.otlp.span_sizes import array_sizes, span_sizes, value_sizes
from telemetry.sidecar.privacy.rules import CARD_FIGURES, PrivacyRules
from telemetry.store.redaction import NameKind, kind_of_name

_PLACE_OF_ARRAYS: Final = 4
_PSEUDONYM: Final = "^pseudonym-[0-9a-f]{32}$"
_BARE_NUMBER: Final = r"^\s*(?:[A-Za-z]+:)?[0-9(][0-9 ()/-]{5,22}[0-9]\s*$"
_KINDS: Final = np.uint8


@dataclass(frozen=True, slots=True)
class Detected:
    """Which spans are to be cleaned, and which attributes of all spans are only to be left out, whatever they hold."""

    to_clean: Mask
    left_out: Mask


def detect(
    read: ReadSpans, sizes: Sequence[int], frameworks: Sequence[str], framework_of: Places, rules: PrivacyRules
) -> Detected:
    """Find what may not be stored, and what is not read. `sizes` are those of the spans' messages in bytes;
    `framework_of` has of each span the place of its framework in `frameworks`."""
    look = _Look(frameworks, rules)
    spans = read.spans
    attributes = spans["attributes"]
    of_values = value_sizes(attributes.values.field(1))
    found = span_sizes(spans, of_values) != np.asarray(sizes, np.int64)
    arrays = _Arrays(array_sizes(read.items), read.items)
    to_clean, left_out = look.pairs(attributes, framework_of, read.kinds, arrays)
    found |= any_of_list(attributes, to_clean)
    events, links = spans["events"], spans["links"]
    for lists, place in ((events, 2), (links, 3)):
        if len(lists.values):
            of_item = lists.values.field(place)
            of_values = of_item.values.field(1)
            either = np.logical_or(
                *look.pairs(of_item, np.repeat(framework_of, lengths(lists)), kinds(of_values), None)
            )
            found |= any_of_list(lists, any_of_list(of_item, either))
            found |= any_of_list(lists, look.labels(lists.values.field(1 if lists is events else 2)))
    found |= look.labels(spans["name"]) | look.labels(spans["trace_state"])
    messages = compute.struct_field(spans["status"], "message").fill_null("")
    found |= look.texts(messages) if rules.keep_text else lengths(messages) > 0
    return Detected(found, left_out)


class _Arrays:
    """The arrays among attributes: their sizes, and their items."""

    def __init__(self, sizes: Places, items: ArrowArray) -> None:
        self.sizes = sizes
        self.items = items


class _Look:
    """Looks at columns for what may not be stored."""

    def __init__(self, frameworks: Sequence[str], rules: PrivacyRules) -> None:
        self._frameworks = frameworks
        self._rules = rules

    def pairs(self, lists: ArrowArray, framework_of: Places, bits: Bits, arrays: _Arrays | None) -> tuple[Mask, Mask]:
        """Which attributes are to be cleaned, and which are to be left out. Without `arrays`, any array is to be
        cleaned."""
        pairs = lists.values
        if not len(pairs):
            return np.zeros(0, np.bool_), np.zeros(0, np.bool_)
        names = self._name_kinds(pairs.field(0), framework_of, lists)
        values = pairs.field(1)
        left_out = names == NameKind.PERSONAL
        if not self._rules.keep_text:
            left_out |= ((bits & (STRING | BYTES)) != 0) & (names == NameKind.TEXT)
        found = self._values(values, bits, names, ~left_out)
        is_array = bits == ARRAY
        if is_array.any():
            of_array = names[is_array]
            if arrays is None:
                found[is_array] |= of_array != NameKind.OWN
            else:
                items = arrays.items.values
                of_item = np.repeat(of_array, lengths(arrays.items))
                in_array = any_of_list(arrays.items, self._items(items, of_item))
                # What an array holds beyond its items; a person has one id.
                in_array |= arrays.sizes != lengths(values.field(_PLACE_OF_ARRAYS).drop_null())
                found[is_array] |= in_array | (of_array == NameKind.PERSON)
        return found & ~left_out, left_out

    def labels(self, column: ArrowArray) -> Mask:
        """Which labels hold personal data."""
        return _of_texts(column, labels.SUSPECT, lambda text: labels.without_personal_data(text) != text)

    def texts(self, column: ArrowArray) -> Mask:
        """Which texts hold personal data."""
        return _of_texts(column, None, lambda text: self._rules.text(text) != text)

    def _name_kinds(self, keys: ArrowArray, framework_of: Places, lists: ArrowArray) -> npt.NDArray[_KINDS]:
        encoded = keys.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        indices = encoded.indices.to_numpy()
        of_name = [
            np.array([kind_of_name(name, framework) for name in names], _KINDS)[indices]
            for framework in self._frameworks
        ]
        if len(of_name) == 1:
            return of_name[0]
        return np.choose(np.repeat(framework_of, lengths(lists)), of_name)

    def _items(self, items: ArrowArray, names: npt.NDArray[_KINDS]) -> Mask:
        bits = kinds(items)
        nested = ((bits & (ARRAY | KVLIST)) != 0) & (names != NameKind.OWN)
        return self._values(items, bits, names, np.ones(len(names), np.bool_)) | nested

    def _values(self, values: ArrowArray, bits: Bits, names: npt.NDArray[_KINDS], asked: Mask) -> Mask:
        """Which of the values that are asked for hold something that may not be stored, but for what is in arrays."""
        not_own = (names != NameKind.OWN) & asked
        found = not_own & ((bits & (BYTES | KVLIST)) != 0)
        found |= _cards(values.field(2), (bits == INT) & not_own, names)
        found |= _cards(values.field(3), (bits == DOUBLE) & not_own, names)
        strings = (bits == STRING) & not_own
        of_string = names[strings]
        for kind in NameKind:
            if (of_string == kind).any():
                chosen = strings & (names == kind)
                found[chosen] |= self._strings(values.field(0), chosen, kind)
        return found

    def _strings(self, strings: ArrowArray, chosen: Mask, kind: NameKind) -> Mask | bool:
        if kind is NameKind.PERSONAL or (kind is NameKind.TEXT and not self._rules.keep_text):
            return True
        column = strings.filter(pa.array(chosen))
        match kind:
            case NameKind.PERSON:
                return ~_matching(column, _PSEUDONYM)
            case NameKind.ID:
                pattern = f"{labels.SUSPECT}|{_BARE_NUMBER}"
                return _of_texts(column, pattern, lambda text: self._rules.labeled(kind, text) != text)
            case NameKind.LABEL:
                return self.labels(column)
            case _:
                return self.texts(column)


def _cards(figures: ArrowArray, chosen: Mask, names: npt.NDArray[_KINDS]) -> Mask:
    """Which figures are cards, or a person's number."""
    found = chosen & (names == NameKind.PERSON)
    if not chosen.any():
        return found
    numbers = figures.fill_null(0).to_numpy(zero_copy_only=False)
    chosen = chosen & (numbers >= CARD_FIGURES.start) & (numbers < CARD_FIGURES.stop)
    for row in np.flatnonzero(chosen).tolist():
        found[row] |= float(numbers[row]).is_integer() and is_card(str(int(numbers[row])))
    return found


def _of_texts(column: ArrowArray, pattern: str | None, is_found: Callable[[str], bool]) -> Mask:
    """Of which texts it is found; only distinct ones that match the pattern are asked."""
    if not len(column):
        return np.zeros(0, np.bool_)
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary
    suspect = np.ones(len(distinct), np.bool_) if pattern is None else _matching(distinct, pattern)
    if not suspect.any():
        return np.zeros(len(column), np.bool_)
    for place in np.flatnonzero(suspect).tolist():
        suspect[place] = is_found(distinct[place].as_py())
    return np.asarray(suspect[encoded.indices.to_numpy()], np.bool_)


def _matching(column: ArrowArray, pattern: str) -> Mask:
    found = compute.match_substring_regex(column, pattern=pattern)
    return np.array(found.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
