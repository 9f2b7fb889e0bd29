"""Kinds of values in a scenario file, for pydantic models. A field's title is its type in words, for the reference."""

import math
from collections.abc import Callable, Collection
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import AfterValidator, Field, PlainValidator

from loadtest.distributions import Delay
from loadtest.errors import UsageError
from telemetry.model.durations import HELP, Duration, DurationError
from telemetry.model.file_faults import nearest, shown
from telemetry.model.validation import CheckedTable, refused

Made = TypeVar("Made")

DURATION: Final = "duration: a text such as `500ms`, `90s` or `1.5m`, or a number of seconds"
LARGEST_WEIGHT: Final = 1e9


class TomlTable(CheckedTable):
    """A table of the file."""

    kind_of_value: ClassVar[str] = "table"


def text(*, default: Any = None) -> Any:
    """A text that is not empty."""
    return Field(default=default, title="text", description="text in quotes is expected")


def flag() -> Any:
    """True or false."""
    return Field(default=None, title="true or false", description="true or false is expected")


def whole(low: int, high: int) -> Any:
    """A whole number within limits, both included."""
    title = f"whole number from {low} to {high}"
    return Field(default=None, ge=low, le=high, title=title, description=f"a {title} is expected")


def number(low: float, high: float) -> Any:
    """A number within limits, both included."""
    title = f"number from {low:g} to {high:g}"
    return Field(default=None, ge=low, le=high, title=title, description=f"a {title} is expected")


def choice(names: Collection[str], *, default: Any = None) -> Any:
    """One of several texts."""
    listed = ", ".join(names)
    return Field(default=default, title=f"one of {listed}", description=f"one of {listed} is expected")


def duration(*, default: Any = None) -> Any:
    """A length of time."""
    return Field(
        default=default,
        title=DURATION,
        description='a text in quotes such as "500ms" or "2m", or a number of seconds, is expected',
    )


def tables(name: str) -> Any:
    """An array of tables."""
    return Field(
        default=[],
        min_length=1,
        title="array of tables",
        description=f"write each as a table of its own, under [[{name}]]",
    )


def table() -> Any:
    """A table that may be left out."""
    return Field(default=None, title="table")


def free_table(name: str) -> Any:
    """A table that may be left out, with keys that something else knows."""
    return Field(default=None, title="table", description=f"write it as a table, under [{name}]")


def one_of(names: Collection[str]) -> AfterValidator:
    """Checks that a text is one of several."""

    def check(value: str) -> str:
        if value not in names:
            raise refused(f"{shown(value)} is unknown{nearest(value, names)}")
        return value

    return AfterValidator(check)


def parsed(value: str, parse: Callable[[str], Made]) -> Made:
    """What a text stands for; what cannot be read is refused with the sentence of its parser."""
    try:
        return parse(value)
    except UsageError as error:
        raise refused(str(error).removesuffix(".")) from None


def read_duration(value: object, *, zero: bool = False) -> Duration:
    """A duration from a text with a unit, or from a number of seconds; more than 0 unless it may be `zero`."""
    try:
        found = Duration.of_value(value)
    except DurationError:
        raise refused(f"{shown(value)} is not a duration: write it as {HELP}") from None
    if not found.ns and not zero:
        raise refused(f"{shown(value)} is out of range: give more than 0")
    return found


def seconds_or_distribution(parse: Callable[[str], Delay], *, zero: bool = False) -> PlainValidator:
    """Reads seconds as a number, and checks a distribution, which stays in its text form."""

    def read(value: object) -> float | str:
        if not isinstance(value, str) or ":" not in value:
            return read_duration(value, zero=zero).seconds
        parsed(value, parse)
        return value

    return PlainValidator(read)


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("blank")
    return value


def is_number(value: object) -> bool:
    """Whether it is a number that can be compared: true and false are not, and neither is infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


Text = Annotated[str, AfterValidator(_not_blank)]
DurationField = Annotated[Duration, PlainValidator(read_duration)]
