"""Sentences about what somebody wrote: the value on one line, its place, and the known name that is like it. Pure.

Apart from `telemetry.model.validation`, whose pydantic a process that reads no such file need not import.
"""

import difflib
import reprlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, time
from typing import Final

from telemetry.model.foreign_text import one_line, written_out

Path = tuple[str | int, ...]

_LONGEST_SHOWN_CHARS: Final = 80
_LONGEST_NUMBER_BITS: Final = 200


@dataclass(frozen=True, slots=True)
class FaultAt:
    """A fault at a place: keys and positions (from 0) from the root, and a sentence without the place."""

    path: Path
    sentence: str


def path_text(path: Path, first: int = 0) -> str:
    """A path in words, `spec.objectives[0].target`; positions count from `first`."""
    text = ""
    for part in path:
        text += f"[{part + first}]" if isinstance(part, int) else f".{_shown_key(part)}" if text else _shown_key(part)
    return text


def shown(value: object) -> str:
    """A value that somebody wrote, on one line and at most 80 characters long."""
    return one_line(_Brief().repr(value), _LONGEST_SHOWN_CHARS)


def nearest(name: str, known: Collection[str]) -> str:
    """The end of a sentence about an unknown name: the known one that is like it, or all of them."""
    close = difflib.get_close_matches(name[:_LONGEST_SHOWN_CHARS], known, 1, 0.5)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


def _shown_key(key: str) -> str:
    return one_line("".join(map(written_out, key[: _LONGEST_SHOWN_CHARS + 1])), _LONGEST_SHOWN_CHARS)


class _Brief(reprlib.Repr):
    """Bounded in length and depth: a file can hold a text of a million characters, or a list that holds itself."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist = 2, 3, 4
        self.maxstring = self.maxother = _LONGEST_SHOWN_CHARS

    def repr_NoneType(self, x: None, level: int) -> str:  # noqa: N802 - the name that reprlib looks for
        """Write None as YAML and JSON do."""
        del x, level
        return "null"

    def repr_bool(self, x: bool, level: int) -> str:
        """Write a truth value as YAML, TOML and JSON do."""
        del level
        return str(x).lower()

    def repr_date(self, x: date | time, level: int) -> str:
        """Write a date or time as YAML and TOML do."""
        del level
        return str(x)

    repr_datetime = repr_time = repr_date

    def repr_int(self, x: int, level: int) -> str:
        """A whole number; Python refuses to write out one of more than 4300 digits."""
        del level
        return repr(x) if x.bit_length() <= _LONGEST_NUMBER_BITS else "a number of more than 60 digits"
