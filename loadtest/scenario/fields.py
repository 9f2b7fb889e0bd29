"""Kinds of values that flags and scenario files take, for pydantic models.

A field's title is its type in words, for the reference; its description says how to mend a value that is not one.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeVar, get_args

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator

from loadtest.conversation.plan import SECOND_NS
from loadtest.distributions import Delay
from loadtest.errors import UsageError
from telemetry.model.durations import HELP, Duration, DurationError
from telemetry.model.file_faults import nearest, shown
from telemetry.model.foreign_text import has_control_characters
from telemetry.model.validation import CheckedTable, refused

# Which commands take a flag: those that send callers over prepared speech, those that also shape the callers, those
# that make one run, plain Locust alone, or our command alone because Locust has a flag of that name.
Scope = Literal["speech", "callers", "run", "locust", "swarm"]
# The subject of a flag. Help lists the groups in this order.
Group = Literal["target", "load", "speech", "behavior", "objectives", "output", "machine"]
GROUPS: Final[tuple[Group, ...]] = get_args(Group)

DURATION: Final = "duration: a text such as `500ms`, `90s` or `1.5m`, or a number of seconds"
LARGEST_WEIGHT: Final = 1e9
LONGEST_WAIT: Final = Duration(3600 * SECOND_NS)
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Option:
    """The flag of a setting. In the annotation of a field it adds what the field itself does not say."""

    help: str
    group: Group = "behavior"
    scope: Scope = "callers"
    metavar: str | None = None
    ours: str | None = None  # the flag of our own commands, where Locust has another use for that name
    short: str | None = None  # likewise, in one letter
    guessed: bool = False  # without the flag, the value follows from the address
    declared: str = ""  # the attribute by which each process of a run declares the value as it is
    is_per_machine: bool = (
        False  # about the machine of one process: what a worker was given itself wins over the master's
    )
    # From the field.
    name: str = ""
    kind: type[str | int | float | bool | Duration] = str
    repeatable: bool = False
    default: Any = None  # without the flag; None where the setting then has no value

    @property
    def flag(self) -> str:
        """The flag on Locust's command line."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a key of the scenario file that is not a flag, for the reference."""

    text: str


class TomlTable(CheckedTable):
    """A table of the file."""

    kind_of_value: ClassVar[str] = "table"


def text(default: Any = None, alias: str | None = None) -> Any:
    """A text that is not empty; `alias` is its key in the file, where that is not its name."""
    return Field(default=default, alias=alias, title="text", description="text in quotes is expected")


def flag(default: bool, alias: str | None = None) -> Any:
    """True or false."""
    return Field(default=default, alias=alias, title="true or false", description="true or false is expected")


def whole(default: Any, low: int, high: int | None = None) -> Any:
    """A whole number within limits, both included."""
    title = f"whole number from {low} to {high}" if high is not None else f"whole number, {low} or more"
    return Field(default=default, ge=low, le=high, title=title, description=f"a {title} is expected")


def number(default: Any, low: float, high: float) -> Any:
    """A number within limits, both included."""
    title = f"number from {low:g} to {high:g}"
    return Field(default=default, ge=low, le=high, title=title, description=f"a {title} is expected")


def more_than_0(default: Any, high: float) -> Any:
    """A number above 0, up to a limit."""
    mend = f"a number, more than 0 and at most {high:g}, is expected"
    return Field(default=default, gt=0, le=high, title=f"number above 0 to {high:g}", description=mend)


def choice(default: Any, names: Collection[str]) -> Any:
    """One of several texts."""
    listed = ", ".join(names)
    return Field(default=default, title=f"one of {listed}", description=f"one of {listed} is expected")


def duration(default: Any = None, alias: str | None = None) -> Any:
    """A length of time; the default as a text."""
    return Field(
        default=default,
        validate_default=default is not ... and default is not None,
        alias=alias,
        title=DURATION,
        description='a text in quotes such as "500ms" or "2m", or a number of seconds, is expected',
    )


def tables(name: str) -> Any:
    """An array of tables, each under a heading of this name."""
    mend = f"write each as a table of its own, under [[{name}]]"
    key = name.rpartition(".")[2]
    return Field(default=[], alias=key, min_length=1, title="array of tables", description=mend)


def one_of(names: Collection[str] | Callable[[], Collection[str]]) -> AfterValidator:
    """Check that a text is one of several, which may be known only when there is a value."""

    def check(value: str | None) -> str | None:
        known = names() if callable(names) else names
        if value is not None and value not in known:
            raise refused(f"{shown(value)} is unknown{nearest(value, known)}")
        return value

    return AfterValidator(check)


def read_by(read: Callable[[Any], Any], accepts: Any = str) -> PlainValidator:
    """Read a value that is not None; what `read` cannot use is refused with its sentence. ValueError: the field's."""

    def optional(value: Any) -> Any:
        if value is None:
            return None
        try:
            return read(value)
        except UsageError as error:
            raise refused(str(error).removesuffix(".")) from None

    return PlainValidator(optional, json_schema_input_type=accepts)


def read_as(made: type[Made], parse: Callable[[str], Made]) -> PlainValidator:
    """Read a text by its parser; what was made of one is kept."""
    return read_by(lambda value: value if isinstance(value, made) else parse(_text(value)))


def seconds_or_distribution(parse: Callable[[float | str], Delay]) -> PlainValidator:
    """Read a number of seconds or a text: a duration, or a distribution."""

    def read(value: object) -> Delay:
        if isinstance(value, Delay):
            return value
        if isinstance(value, str) and (":" in value or value.strip() == "none"):
            return parse(value)
        try:
            seconds = Duration.of_value(value).seconds
        except DurationError:
            forms = f"{HELP}, or as a distribution such as lognormal:3s:0.5"
            raise refused(f"{shown(value)} is not a duration: write it as {forms}") from None
        return parse(seconds)

    return read_by(read, accepts=str | float)


def _text(value: object) -> str:
    # No check of the encoding: a path may hold bytes that are not UTF-8.
    if not isinstance(value, str) or not value.strip():
        raise ValueError("not a text")
    return value


def _line(value: object) -> str:
    if has_control_characters(_text(value)):
        raise refused("holds a line break or another control character; leave it out")
    return str(value)


def _duration(value: object, *, zero: bool = False, longest: Duration | None = None) -> Duration:
    try:
        parsed = value if isinstance(value, Duration) else Duration.of_value(value)
    except DurationError:
        raise refused(f"{shown(value)} is not a duration: write it as {HELP}") from None
    if (not parsed.ns and not zero) or (longest is not None and parsed > longest):
        limit = "" if longest is None else f" and at most {longest}"
        given = str(value) if isinstance(value, Duration) else shown(value)
        raise refused(f"{given} is out of range: give {'0 or more' if zero else 'more than 0'}{limit}")
    return parsed


def is_number(value: object) -> bool:
    """Return whether it is a number that can be compared: true and false are not, and neither is infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


TEXT: Final = read_by(_text)
LINE: Final = read_by(_line)  # a text that travels in lines: addresses, headers, events, logs
AS_TEXT: Final = PlainSerializer(lambda value: None if value is None else str(value))
ANY_DURATION: Final = read_by(lambda value: _duration(value, zero=True), accepts=str | float)
SOME_DURATION: Final = read_by(_duration, accepts=str | float)


def duration_up_to(longest: Duration, *, zero: bool = False) -> PlainValidator:
    """Read a duration above 0, or with `zero` from 0 on, up to a limit."""
    return read_by(lambda value: _duration(value, zero=zero, longest=longest), accepts=str | float)
