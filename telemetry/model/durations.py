"""A length of time in the form used in flags and files: `500ms`, `2s`, `1.5m`, `1h30m`, `7d`. Pure."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

HELP: Final = "500ms, 2s, 1.5m or 1h"
METAVAR: Final = "<duration>"  # for the help of flags

_NS_PER: Final = {
    "d": 86_400 * 10**9,
    "h": 3_600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "µs": 10**3,
    "ns": 1,
}
_LONGEST_NUMBER_BITS: Final = 1000  # Python refuses to write out much longer ones
_NUMBER: Final = r"[0-9]{1,19}(?:\.[0-9]{1,9})?"
_BARE: Final = re.compile(_NUMBER)
_PART: Final = re.compile(rf"({_NUMBER}) ?(ms|us|µs|ns|s|m|h|d)")
_WHOLE: Final = re.compile(rf"(?:{_NUMBER} ?(?:ms|us|µs|ns|s|m|h|d))+")


class DurationError(ValueError):
    """Raised for a text that is not a duration; the sentence says how to write one."""


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time, 0 or more, in integer nanoseconds. Parsing its text form gives an equal value."""

    ns: int = 0

    def __post_init__(self) -> None:
        if self.ns < 0:
            raise DurationError(f"a duration of {self.ns} ns is negative")

    @classmethod
    def parse(cls, text: str, *, bare: bool = True) -> "Duration":
        """Read a text; a `bare` number, where allowed, is seconds. Raises DurationError."""
        body = text.strip().lower()
        if bare and _BARE.fullmatch(body):
            return cls(round(Fraction(body) * _NS_PER["s"]))
        if not _WHOLE.fullmatch(body):
            raise DurationError(f"{text!r} is not a duration: write it as {HELP}")
        return cls(round(sum(Fraction(number) * _NS_PER[unit] for number, unit in _PART.findall(body))))

    @classmethod
    def of_s(cls, seconds: float) -> "Duration":
        """A number of seconds, rounded to whole nanoseconds. Raises DurationError for one that is not 0 or more."""
        try:
            return cls(round(Fraction(seconds) * _NS_PER["s"]))
        except (ValueError, OverflowError):
            raise DurationError(f"{seconds:g} is not a duration: write it as {HELP}, or in seconds") from None

    @classmethod
    def of_value(cls, value: object) -> "Duration":
        """A value of a file: a text, or a number of seconds. Raises DurationError; ValueError for any other value."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError("neither text nor a number")  # noqa: TRY004 - pydantic asks for a ValueError
        if isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER_BITS:
            raise ValueError("too large")
        return cls.parse(value) if isinstance(value, str) else cls.of_s(value)

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.ns / 1e9

    def __str__(self) -> str:
        # One day is "24h", as people write it.
        units = (unit for unit, ns in _NS_PER.items() if self.ns % ns == 0 and self.ns > (unit == "d") * ns)
        unit = next(units, "s") if self.ns else "s"
        return f"{self.ns // _NS_PER[unit]}{unit}"
