"""Checks rows of a JSON-lines file with pydantic; every fault of a row is a sentence with its key and how to mend it.

The types come from a class, and what else is required comes from a `Rule` per key. pydantic is imported when the first
row is checked: most commands read no manifest, and the import takes a tenth of the time of `voiceprobe --help`.
"""

import difflib
import inspect
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

Row = Mapping[str, object]

_LONGEST_SHOWN_CHARS: Final = 80
_LONGEST_ID_CHARS: Final = 100
_LONGEST_NUMBER_BITS: Final = 200


@dataclass(frozen=True, slots=True)
class Rule:
    """The requirement on the value of a key, as the end of "it must be ...", and the arguments of a pydantic `Field`.

    `item_must_be` is the same for the items of a list. A pattern is matched by the Rust crate `regex`, where `$` is the
    end of the text.
    """

    must_be: str
    constraints: Mapping[str, Any] = field(default_factory=dict[str, Any])
    item_must_be: str = ""


NAME_RULE: Final = Rule(
    "1 to 100 letters, digits, dots, dashes or underscores, beginning with a letter or a digit",
    {"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"},
)


def one_line_rule(max_chars: int, or_null: str = "") -> Rule:
    """Return the rule for a text that is one line, not blank and without control characters."""
    return Rule(
        f"one line of 1 to {max_chars} characters, not blank and without control characters{or_null}",
        {"pattern": r"^[^\x00-\x1f\x7f]*[^\x00-\x1f\x7f\s][^\x00-\x1f\x7f]*$", "max_length": max_chars},
    )


@dataclass(frozen=True, slots=True)
class RowFault:
    """A sentence about the value of a key; `key` is empty if the row itself is wrong."""

    key: str
    sentence: str


@dataclass(frozen=True)
class RowChecker:
    """Checks rows whose keys and types are the parameters of a class; each parameter has a rule.

    Types are exact: true is not a number, and 1.0 is not a whole number.
    """

    row_class: Callable[..., object]
    rules: Mapping[str, Rule]
    unknown_keys: Literal["forbid", "ignore"] = "forbid"

    @cached_property
    def _model(self) -> "type[BaseModel]":
        from pydantic import ConfigDict, Field, create_model

        parameters = inspect.signature(self.row_class).parameters.values()
        fields: dict[str, Any] = {
            parameter.name: (
                parameter.annotation,
                Field(
                    ... if parameter.default is parameter.empty else parameter.default,
                    **self.rules[parameter.name].constraints,
                ),
            )
            for parameter in parameters
        }
        config = ConfigDict(strict=True, extra=self.unknown_keys, allow_inf_nan=False)
        return create_model("Row", __config__=config, **fields)

    def find_faults(self, row: object) -> list[RowFault]:
        """Return every fault of a row, in the order of the class's parameters; an empty list if there are none."""
        from pydantic import ValidationError

        try:
            self._model.model_validate(row)
        except ValidationError as error:
            return [self._fault(details) for details in error.errors(include_url=False, include_context=False)]
        return []

    def _fault(self, details: "ErrorDetails") -> RowFault:
        if not details["loc"]:
            return RowFault("", f"is {shown(details['input'])}; it must be an object with {', '.join(self.rules)}.")
        key = str(details["loc"][0])
        if details["type"] == "extra_forbidden":
            return RowFault(key, f"the field {shown(key)} is unknown; {_spelling(key, tuple(self.rules))}")
        rule = self.rules[key]
        if details["type"] == "missing":
            return RowFault(key, f"the field {key} is missing; it must be {rule.must_be}.")
        place = "".join(f"[{position}]" for position in details["loc"][1:])
        value = shown(details["input"])
        return RowFault(key, f"{key}{place} is {value}; it must be {rule.item_must_be if place else rule.must_be}.")


class DuplicateFinder:
    """Finds values that occur twice in a file, ignoring case: a corpus must also work on file systems that do."""

    def __init__(self) -> None:
        self._line_by_value: dict[tuple[str, str], int] = {}

    def find(self, key: str, value: str, line: int) -> list[str]:
        """Add the value of a key in a line; returns a sentence if an earlier line has the same."""
        earlier = self._line_by_value.setdefault((key, value.casefold()), line)
        return [] if earlier == line else [f"{key} {shown(value)} is already used in line {earlier}; change one."]


def numbered(number: int, noun: str) -> str:
    """A number with its noun: "1 utterance", "2 utterances"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shown(value: object) -> str:
    """Return a value from JSON on one line, at most 80 characters long, with control characters escaped."""
    text = _ShortRepr().repr(value)
    return text if len(text) <= _LONGEST_SHOWN_CHARS else f"{text[: _LONGEST_SHOWN_CHARS - 1]}…"


def row_label(row: Row) -> str:
    """Return the id of a row for a sentence, on one line and at most 100 characters long; "?" if it has none."""
    label = row.get("id", "?")
    if not isinstance(label, str):
        return shown(label)
    escaped = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in label[:_LONGEST_ID_CHARS]
    )
    return escaped[:_LONGEST_ID_CHARS]


@lru_cache(maxsize=256)  # the same unknown key is usually in every row
def _spelling(key: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(key[:_LONGEST_SHOWN_CHARS], known, 1, 0.7)
    return f"did you mean {close[0]}?" if close else "check its spelling or remove it."


class _ShortRepr(reprlib.Repr):
    """Writes values as JSON does where Python differs; bounded, because a value may be megabytes long."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple = 2, 3, 4, 4
        self.maxstring = self.maxother = _LONGEST_SHOWN_CHARS

    def repr_NoneType(self, x: None, level: int) -> str:  # noqa: N802 - the name that reprlib looks for
        """Write null."""
        del x, level
        return "null"

    def repr_bool(self, x: bool, level: int) -> str:
        """Write true or false."""
        del level
        return str(x).lower()

    def repr_int(self, x: int, level: int) -> str:
        """Write a whole number; Python refuses to convert one of more than 4300 digits."""
        del level
        return repr(x) if x.bit_length() <= _LONGEST_NUMBER_BITS else "a number of more than 60 digits"
