"""Rules for a name and a value, applied before anything of a request is written. Pure."""

from dataclasses import dataclass, field
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from telemetry.model.personal_data import (
    NO_NAMES,
    Names,
    identifies_person,
    is_card,
    is_pseudonym,
    label_without_personal_data,
    mark,
    pseudonym,
    text_without_personal_data,
)
from telemetry.store.redaction import NameKind

_CARD_FIGURES: Final = range(10**12, 10**19)
_NESTED: Final = ("array_value", "kvlist_value")


@dataclass(frozen=True, slots=True)
class PrivacyRules:
    """The options of redaction. `key` makes the pseudonyms of a store. `keep_text` keeps texts, without the personal
    data in them; `names` are the people who are not named in them."""

    key: bytes = field(repr=False)
    keep_text: bool = False
    names: Names = NO_NAMES

    def text(self, text: str) -> str:
        """Return what is kept of a text where texts are kept."""
        return text_without_personal_data(text, self.names)

    def free_text(self, text: str) -> str:
        """Return what is kept of a text that may be anything: the message of a status, the description of a metric."""
        return self.text(text) if self.keep_text else ""

    def labeled(self, kind: NameKind, text: str) -> str | None:
        """Return what is kept of a text under a name of this kind; None when nothing is."""
        match kind:
            case NameKind.OWN:
                return text
            case NameKind.LABEL:
                return label_without_personal_data(text)
            case NameKind.ID:
                is_personal = not is_pseudonym(text) and identifies_person(text)
                return pseudonym(text, self.key) if is_personal else text
            case NameKind.PERSON:
                return pseudonym(text, self.key) if text else text
            case NameKind.REASON:
                return self.text(text)
            case NameKind.TEXT:
                return self.text(text) if self.keep_text else None
            case NameKind.PERSONAL:
                return None

    def keep(self, value: AnyValue, kind: NameKind) -> bool:
        """Take out of the value of an attribute, whose name is of this kind, what may not be stored; false when nothing
        of it may."""
        if kind is NameKind.PERSONAL or (kind is NameKind.PERSON and value.WhichOneof("value") in _NESTED):
            return False
        return self._keep_value(value, kind)

    def _keep_value(self, value: AnyValue, kind: NameKind) -> bool:
        match value.WhichOneof("value"):
            case "string_value":
                text = value.string_value
                kept = self.labeled(kind, text)
                if kept is not None and kept != text:
                    value.string_value = kept
                return kept is not None
            case "bytes_value":
                return self._keep_bytes(value, kind)
            case "int_value":
                return self._keep_figure(value, kind, value.int_value)
            case "double_value":
                return not value.double_value.is_integer() or self._keep_figure(value, kind, int(value.double_value))
            case "array_value":
                return all(self._keep_value(item, kind) for item in value.array_value.values)
            case "kvlist_value":
                return self._keep_pairs(value, kind)
            case _:
                pass
        return True

    def _keep_bytes(self, value: AnyValue, kind: NameKind) -> bool:
        """Bytes that are no text, or whose text is kept as it is, stay; others are as a text is."""
        text = value.bytes_value.decode("utf-8", "surrogateescape")
        kept = self.labeled(kind, text)
        if kept is not None and kept != text:
            value.string_value = kept.encode("utf-8", "replace").decode()
        return kept is not None

    def _keep_figure(self, value: AnyValue, kind: NameKind, figure: int) -> bool:
        if kind is NameKind.PERSON:
            value.string_value = pseudonym(str(figure), self.key)
        elif kind is not NameKind.OWN and figure in _CARD_FIGURES and is_card(str(figure)):
            if self.labeled(kind, "") is None:
                return False
            value.string_value = mark("card")
        return True

    def _keep_pairs(self, value: AnyValue, kind: NameKind) -> bool:
        """The keys of pairs are text themselves: with what holds none, only an empty list of pairs is kept."""
        pairs = value.kvlist_value.values
        if kind is NameKind.TEXT and not self.keep_text:
            return not pairs
        for pair in pairs:
            key = self.labeled(NameKind.LABEL if kind is NameKind.ID else kind, pair.key)
            if key is None or not self._keep_value(pair.value, kind):
                return False
            if key != pair.key:
                pair.key = key
        return True
