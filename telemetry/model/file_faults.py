"""Faults in files that people write: the value on one line, its place and line, and the most similar known name. Pure.

Separate from `telemetry.model.validation`, whose pydantic a process that reads no such file need not import.
"""

import difflib
import re
import reprlib
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from typing import Any, Final

from telemetry.model.errors import ConfigError
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
    """A path as text, `spec.objectives[0].target`; positions count from `first`."""
    text = ""
    for part in path:
        text += f"[{part + first}]" if isinstance(part, int) else f".{_shown_key(part)}" if text else _shown_key(part)
    return text


def shown(value: object) -> str:
    """A value from a file, on one line and at most 80 characters long."""
    return one_line(_Brief().repr(value), _LONGEST_SHOWN_CHARS)


def nearest(name: str, known: Collection[str]) -> str:
    """The end of a sentence about an unknown name: the most similar known one, or all of them."""
    close = difflib.get_close_matches(name[:_LONGEST_SHOWN_CHARS], known, 1, 0.5)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


def _shown_key(key: str) -> str:
    return one_line("".join(map(written_out, key[: _LONGEST_SHOWN_CHARS + 1])), _LONGEST_SHOWN_CHARS)


class _Brief(reprlib.Repr):
    """Bounded in length and depth: a file can contain a text of a million characters, or a list that contains
    itself."""

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


_TOKEN: Final = re.compile(
    r"(?P<space>[ \t\r]+|#[^\n]*)"
    r"|(?P<newline>\n)"
    r'|(?P<text>"""(?:\\.|[^\\])*?"""(?:"{0,2})|\'\'\'.*?\'\'\'(?:\'{0,2})|"(?:\\.|[^"\\])*"|\'[^\']*\')'
    r"|(?P<mark>[\[\]{}=,.])"
    r"|(?P<word>[^\s\[\]{}=,.#\"']+)",
    re.DOTALL,
)
_ENDS: Final = ("\n", ",", "]", "}")


@dataclass(frozen=True, slots=True)
class TomlText:
    """A text that is valid TOML, called `name` in sentences about it."""

    name: str
    text: str
    table: Mapping[str, Any]

    def sentences(self, faults: Iterable[FaultAt]) -> list[str]:
        """The faults with their places, `a.toml: line 3, phases[2].users: ...`, in the order of the lines."""
        listed = list(faults)
        lines = _Lines(self.text).read() if listed else {}
        placed = sorted(((_line(lines, fault.path), fault) for fault in listed), key=lambda item: item[0])
        return [f"{self.name}: line {line}, {path_text(fault.path, 1)}: {fault.sentence}" for line, fault in placed]


def parse_toml(text: str, name: str) -> TomlText:
    """Read a text. Raises ConfigError, which names the text."""
    try:
        return TomlText(name, text, tomllib.loads(text))
    except (ValueError, RecursionError) as error:  # also a number of more than 4300 digits, or brackets a thousand deep
        raise ConfigError(name, [f"is not valid TOML: {one_line(str(error))}"]) from None


def _line(lines: Mapping[Path, int], path: Path) -> int:
    """The line of the value at a path; if it is missing, of its nearest parent."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


@dataclass(slots=True)
class _Lines:
    """Reads a text that is known to be valid TOML once, and records where each key occurs first."""

    text: str
    _tokens: list[tuple[str, int]] = field(default_factory=list)
    _at: int = 0
    _lines: dict[Path, int] = field(default_factory=dict)
    _lengths: dict[Path, int] = field(default_factory=dict)  # of arrays of tables

    def read(self) -> dict[Path, int]:
        """The line of each path, counted from 1."""
        line = 1
        for match in _TOKEN.finditer(self.text):
            if match.lastgroup != "space":
                self._tokens.append((match[0], line))
            line += match[0].count("\n")
        table: Path = ()
        while self._at < len(self._tokens):
            if self._next() == "\n":
                self._take()
            elif self._next() == "[":
                table = self._header()
            else:
                self._entry(table)
        return self._lines

    def _next(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else "\n"

    def _take(self) -> int:
        """Advance by one token; return the line of it."""
        self._at += 1
        return self._tokens[self._at - 1][1] if self._at <= len(self._tokens) else 0

    def _header(self) -> Path:
        line = self._take()
        is_array = self._next() == "["
        if is_array:
            self._take()
        keys = self._keys()
        path: Path = ()
        for number, key in enumerate(keys, 1):
            path = (*path, key)
            if is_array and number == len(keys):
                self._lengths[path] = self._lengths.get(path, 0) + 1
            self._lines.setdefault(path, line)
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
                self._lines.setdefault(path, line)
        while self._next() == "]":
            self._take()
        return path

    def _entry(self, table: Path) -> None:
        line = self._tokens[self._at][1]
        for key in self._keys():
            table = (*table, key)
            self._lines.setdefault(table, line)
        self._take()
        self._value(table)

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while self._next() not in ("=", "]"):
            key = self._next()
            if key != ".":
                keys.append(tomllib.loads(f"key = {key}")["key"] if key[0] in "\"'" else key)
            self._take()
        return keys

    def _value(self, path: Path) -> None:
        opening = self._next()
        if opening not in ("[", "{"):
            while self._next() not in _ENDS:
                self._take()
            return
        self._take()
        position = 0
        while self._next() not in ("]", "}"):
            if self._next() in ("\n", ","):
                self._take()
            elif opening == "{":
                self._entry(path)
            else:
                self._lines.setdefault((*path, position), self._tokens[self._at][1])
                self._value((*path, position))
                position += 1
        self._take()
