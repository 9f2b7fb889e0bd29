"""Validation of the flags of an import; all faults are reported at once."""

import math
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from corpora.manifest.clips import MAX_CLIP_S
from corpora.manifest.edges import parse_edges
from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import RATES_HZ, Edges
from corpora.sources.importing.clipping import one_line
from corpora.sources.importing.decoding import MAX_CHANNELS, parse_raw_format
from corpora.sources.importing.items import LEVELS, Loudness, RawFormat

_SIDES = {"left": 0, "right": 1}
_LEVELS_DB = (-60.0, -1.0)


@dataclass(slots=True)
class Flags:
    """Checks flags one by one and collects their faults."""

    faults: list[str] = field(default_factory=list[str])

    def raise_faults(self) -> None:
        """Raise CorpusError with every fault, if there are any."""
        if self.faults:
            raise CorpusError("\n".join(self.faults))

    def text(self, flag: str, value: str) -> str:
        """Check a text: it must not be empty; returns it as one line."""
        if not one_line(value):
            self.faults.append(f"{flag} is empty; give it a value or omit it.")
        return one_line(value)

    def edges(self, value: str | None) -> Edges | None:
        """Check the name of edges."""
        try:
            return None if value is None else parse_edges(value)
        except CorpusError as error:
            self.faults.append(str(error))
            return None

    def rate(self, value: int | None) -> int | None:
        """Check a sample rate: a corpus must support it."""
        if value is not None and value not in RATES_HZ:
            self.faults.append(f"--rate is {value}; it must be from {RATES_HZ[0]} to {RATES_HZ[-1]} Hz.")
        return value

    def loudness(self, value: str) -> Loudness:
        """Check the name of a loudness measure."""
        if value not in get_args(Loudness):
            self.faults.append(f"--loudness is {value!r}; use one of {', '.join(get_args(Loudness))}.")
        return cast("Loudness", value)

    def level(self, value: float | None, loudness: str) -> float:
        """Check a level in the unit of the loudness measure."""
        if value is None:
            return LEVELS.get(cast("Loudness", loudness), 0.0)
        if loudness == "none":
            self.faults.append("--level requires --loudness asl or bs1770.")
        low, high = _LEVELS_DB
        if not low <= value <= high:
            self.faults.append(f"--level is {value:g}; it must be from {low:g} to {high:g} dB.")
        return value

    def channel(self, flag: str, value: str | None) -> int | None:
        """Parse a channel: a number or a side."""
        if value is None:
            return None
        if value.lower() in _SIDES:
            return _SIDES[value.lower()]
        if value.isdecimal() and int(value) < MAX_CHANNELS:
            return int(value)
        more = ", or mix" if flag == "--channel" else ""
        self.faults.append(f"{flag} is {value!r}; use left, right, a number from 0 to {MAX_CHANNELS - 1}{more}.")
        return None

    def channel_or_mix(self, value: str | None) -> int | Literal["mix"] | None:
        """Parse a channel, or `mix` for all of them."""
        return "mix" if value == "mix" else self.channel("--channel", value)

    def raw(self, value: str | None) -> RawFormat | None:
        """Parse the format of files without a header."""
        try:
            return None if value is None else parse_raw_format(value)
        except CorpusError as error:
            self.faults.append(str(error))
            return None

    def seconds(self, flag: str, value: float, most: float = MAX_CLIP_S) -> float:
        """Check a duration: it must be above zero."""
        if not (math.isfinite(value) and 0.0 < value <= most):
            self.faults.append(f"{flag} is {value:g}; it must be above 0 and at most {most:g} seconds.")
        return value
