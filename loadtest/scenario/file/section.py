"""One table of a scenario file, read key by key. Faults are gathered, so that all of a file are reported at once."""

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from telemetry.model.durations import HELP, Duration, DurationError


class Section:
    """A table at a place of the file, e.g. `phases[2]`. Each `get` of a key that is not there gives None.

    A value that cannot be used is a fault and gives None too: whoever reads goes on, and the file is refused
    at the end.
    `close()` when all keys have been asked for; what nobody asked for is a fault.
    """

    def __init__(self, table: Mapping[str, Any], place: str, faults: list[str]) -> None:
        self._table, self._place, self._faults = table, place, faults
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def where(self, key: str) -> str:
        """The name of a key in the whole file."""
        return f"{self._place}.{key}" if self._place else key

    def fault(self, key: str, sentence: str) -> None:
        """Note what is wrong with a key."""
        self._faults.append(f"{self.where(key)}: {sentence}")

    def get(self, key: str) -> Any:
        """The value as it stands in the file; marks the key as known."""
        self._asked.add(key)
        return self._table.get(key)

    def text(self, key: str, *, one_of: Sequence[str] = ()) -> str | None:
        """A text that is not empty, where given one of several."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self.fault(key, f"{_shown(value)} is not a text: give one in quotes")
            return None
        if one_of and value not in one_of:
            near = difflib.get_close_matches(value, one_of, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(one_of)}"
            self.fault(key, f"{value!r} is unknown: {hint}")
            return None
        return value

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value = self.get(key)
        if value is None or isinstance(value, bool):
            return value
        self.fault(key, f"{_shown(value)} is neither true nor false")
        return None

    def integer(self, key: str, low: int, high: int) -> int | None:
        """A whole number within limits, both included."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.fault(key, f"{_shown(value)} is out of range: give a whole number from {low} to {high}")
            return None
        return value

    def number(self, key: str, low: float, high: float, *, above: bool = False) -> float | None:
        """A number within limits, the lower one included unless it must be `above` it."""
        value = self.get(key)
        if value is None:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or not (low < value if above else low <= value)
            or value > high
        ):
            least = f"more than {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
            self.fault(key, f"{_shown(value)} is out of range: give a number, {least}")
            return None
        return float(value)

    def duration(self, key: str, *, zero: bool = False) -> Duration | None:
        """A duration, more than 0 unless it may be `zero`: a text such as "90s" or "2m", or a number of seconds."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.fault(key, f"{_shown(value)} is not a duration: write it as {HELP}, in quotes")
            return None
        try:
            found = Duration.parse(value) if isinstance(value, str) else Duration.of_s(value)
        except DurationError as error:
            self.fault(key, str(error))
            return None
        if not found.ns and not zero:
            self.fault(key, f"{_shown(value)} is out of range: give more than 0")
            return None
        return found

    def table(self, key: str) -> "Section | None":
        """A table below this one. Whoever takes it closes it."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.fault(key, f"{_shown(value)} is not a table: write [{self.where(key)}]")
            return None
        return Section(cast("Mapping[str, Any]", value), self.where(key), self._faults)

    def tables(self, key: str) -> "list[Section]":
        """The tables of an array below this one, counted from 1 in sentences. Whoever takes them closes them."""
        value = self.get(key)
        if value is None:
            return []
        items = cast("list[Any]", value) if isinstance(value, list) else []
        tables: list[Mapping[str, Any]] = [item for item in items if isinstance(item, Mapping)]
        if not tables or len(tables) < len(items):
            self.fault(key, f"write each as a table of its own, under [[{self.where(key)}]]")
            return []
        return [Section(item, f"{self.where(key)}[{n}]", self._faults) for n, item in enumerate(tables, 1)]

    def close(self) -> None:
        """Make every key that nobody asked for a fault."""
        for key in self._table:
            if key not in self._asked:
                near = difflib.get_close_matches(key, self._asked, n=1)
                known = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(self._asked))}"
                self.fault(key, f"unknown; {known}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
