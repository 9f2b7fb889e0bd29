"""Declared distributions of lengths of time: `constant:60ms`, `lognormal:60ms:0.3`, and a slow tail.

The scripted engines of the assistant draw their delays from them, the callers their patience and their pauses. A
distribution is part of a run's configuration, so it has a text form which reads back equal:

    none | constant:T | uniform:LOW:HIGH | normal:MEAN:SIGMA | lognormal:MEDIAN:SIGMA     [;tail=SHARE:EXTRA]

Times are durations with their unit (`60ms`, `1.5s`, `2m`); the sigma of `lognormal` is that of the logarithm and has
none. With `;tail=0.02:2s` two draws in a hundred take two seconds longer. A draw is never negative: a normal draw below
zero is zero. Draws depend on the random source alone, so a seed gives the same values everywhere.
"""

import math
import random
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

from loadtest.errors import UsageError
from telemetry.model.durations import Duration, DurationError

Kind = Literal["none", "constant", "uniform", "normal", "lognormal"]

_NS_PER: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_FORMS: Final[dict[str, tuple[str, ...]]] = {
    "none": (),
    "constant": ("time",),
    "uniform": ("time", "time"),
    "normal": ("time", "time"),
    "lognormal": ("time", "number"),
}
HELP: Final = "constant:60ms, uniform:40ms:80ms, normal:60ms:10ms, lognormal:60ms:0.3 or none, each with ;tail=0.02:2s"


@dataclass(frozen=True, slots=True)
class Delay:
    """One declared distribution. `first` and `second` are the parameters in ns (sigma of lognormal: a plain number)."""

    kind: Kind = "none"
    first: float = 0.0
    second: float = 0.0
    tail_share: float = 0.0
    tail_extra_ns: int = 0

    def draw_ns(self, source: random.Random) -> int:
        """One value in ns, never negative. Takes the same number of draws from the source whatever the outcome."""
        main, tail = source.random(), source.random()
        delay_ns = self._at(main) + (self.tail_extra_ns if tail < self.tail_share else 0)
        return max(0, round(delay_ns))

    @property
    def mean_ns(self) -> float:
        """The mean of what is drawn, in ns; of a normal distribution without regard to its bound at zero."""
        match self.kind:
            case "uniform":
                mean_ns = (self.first + self.second) / 2
            case "lognormal":
                mean_ns = self.first * math.exp(self.second**2 / 2)
            case "none" | "constant" | "normal":
                mean_ns = self.first
        return mean_ns + self.tail_share * self.tail_extra_ns

    def _at(self, quantile: float) -> float:
        match self.kind:
            case "none":
                return 0.0
            case "constant":
                return self.first
            case "uniform":
                return self.first + (self.second - self.first) * quantile
            case "normal":
                return self.first + self.second * _standard_normal(quantile)
            case "lognormal":
                return self.first * math.exp(self.second * _standard_normal(quantile))

    def __str__(self) -> str:
        parts: list[str] = [self.kind]
        for form, value in zip(_FORMS[self.kind], (self.first, self.second), strict=False):
            parts.append(_time_text(value) if form == "time" else f"{value:g}")
        tail = f";tail={self.tail_share:g}:{_time_text(self.tail_extra_ns)}" if self.tail_share else ""
        return ":".join(parts) + tail


def parse_delay(text: str) -> Delay:
    """Read a distribution from its text form. Raises UsageError with one sentence that shows the accepted forms."""
    body, _, tail = text.strip().partition(";")
    kind, *values = body.split(":")
    forms = _FORMS.get(kind)
    if forms is None or len(values) != len(forms):
        raise UsageError(f"'{text}' is not a distribution of times: write, for example, {HELP}.")
    numbers = [_time_ns(v, text) if f == "time" else _number(v, text) for f, v in zip(forms, values, strict=True)]
    first, second = (*numbers, 0.0, 0.0)[:2]
    if kind == "uniform" and second < first:
        raise UsageError(f"'{text}' is not a distribution of times: the upper bound of uniform is below the lower.")
    share, extra_ns = _parse_tail(tail, text) if tail else (0.0, 0)
    return Delay(kind=kind, first=first, second=second, tail_share=share, tail_extra_ns=extra_ns)  # pyright: ignore[reportArgumentType] - `kind` is a key of _FORMS


def random_source(seed: int, *scope: str | int) -> random.Random:
    """A random source of its own for one scope (call, turn, stage): no draw depends on what others drew before."""
    return random.Random(":".join(str(part) for part in (seed, *scope)))  # noqa: S311 - seeded draws, not secrets


def _parse_tail(tail: str, text: str) -> tuple[float, int]:
    name, _, value = tail.partition("=")
    share_text, _, extra_text = value.partition(":")
    if name != "tail" or not extra_text:
        raise UsageError(f"'{text}' has no readable slow tail: write ;tail=SHARE:EXTRA, for example ;tail=0.02:2s.")
    share = _number(share_text, text)
    if not 0 <= share <= 1:
        raise UsageError(f"'{text}' has a tail share of {share:g}: it lies between 0 and 1.")
    return share, round(_time_ns(extra_text, text))


def _time_ns(value: str, text: str) -> float:
    try:
        return float(Duration.parse(value, bare=False).ns)
    except DurationError as error:
        raise UsageError(f"'{text}' is not a distribution of times: {error}.") from None


def _number(value: str, text: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise UsageError(f"'{text}' is not a distribution of times: '{value}' is not a number of 0 or more.")
    return number


def _time_text(ns: float) -> str:
    for unit in ("s", "ms", "us"):
        scaled = ns / _NS_PER[unit]
        if scaled >= 1 and float(f"{scaled:.12g}") * _NS_PER[unit] == ns:
            return f"{scaled:.12g}{unit}"
    return f"{ns:.0f}ns" if ns == round(ns) else f"{ns:.12g}ns"


def _standard_normal(quantile: float) -> float:
    """The standard normal value at a quantile; the open interval keeps it finite."""
    return NormalDist().inv_cdf(min(max(quantile, 1e-12), 1 - 1e-12))
