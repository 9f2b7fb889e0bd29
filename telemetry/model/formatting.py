"""Numbers as written for people: the one place of units and rounding, for terminal, page, reports and docs.

The rules:

- A duration is in milliseconds, `12.3 ms`: one decimal below 100 ms, none from there on. An error of the instrument is
  finer: three decimals. What somebody declared (a threshold, a limit) is written as it was declared, never rounded.
- A share is a percentage rounded to one decimal, `12.5 %`. A whole percentage is exact, `95 %`: a share that rounding
  would make one has more decimals, so that 94.996 % never reads as the 95 % that an objective asks for, 1.004 % never
  as the 1 % that is allowed, and a part never as the whole. A part never reads as nothing either: `< 0.1 %`.
- Thousands are apart: `1,204`.
- An estimate begins with a sign: `≈ 812 ms`.
- Unknown is `DASH`, never 0.
- Numbers below 0 begin with `MINUS`, as in charts; what programs read has the ASCII hyphen and is not written here.

Durations come as nanoseconds, shares as ratios. Nothing here depends on a metric.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
DASH: Final = "–"
NOT_REPORTED: Final = "not reported"
MINUS: Final = "−"
APPROXIMATELY: Final = "≈"
# For a table that writes its numbers itself, so that it can sort them: `number`, and whole milliseconds.
NUMBER_PRINTF: Final = "%,d"
MILLISECONDS_PRINTF: Final = "%,.0f ms"
_WHOLE_FROM_MS: Final = 100
# A ratio has so many decimals at most; further digits come from calculating in floating point.
_DECIMALS_OF_RATIO: Final = 12


def in_milliseconds(ns: float) -> float:
    """Nanoseconds as a number of milliseconds, for an axis or a tooltip."""
    return ns / NS_PER_MS


def milliseconds(ns: float | None, *, unit: bool = True) -> str:
    """A measured duration: `812 ms`, `47.1 ms`."""
    if ns is None:
        return DASH
    value = in_milliseconds(ns)
    tenths = f"{value:z,.1f}"
    text = _minus(tenths if abs(float(tenths.replace(",", ""))) < _WHOLE_FROM_MS else f"{value:,.0f}")
    return f"{text} ms" if unit else text


def signed_milliseconds(ns: float | None, *, unit: bool = True) -> str:
    """A difference of two durations, with its direction: `+1.2 ms`."""
    if ns is None:
        return DASH
    return _with_direction(milliseconds(ns, unit=unit))


def fine_milliseconds(ns: float | None, *, unit: bool = True) -> str:
    """An error of the instrument, to the microsecond: `0.042 ms`."""
    if ns is None:
        return DASH
    text = _minus(f"{in_milliseconds(ns):z,.3f}")
    return f"{text} ms" if unit else text


def microseconds(ns: float | None) -> str:
    """Format a cost in microseconds, without the unit: `41.7`."""
    return DASH if ns is None else _minus(f"{ns / 1e3:z,.1f}")


def declared_milliseconds(ns: float, *, unit: bool = True) -> str:
    """A configured duration, such as a threshold, with every digit it has: `800 ms`, `0.25 ms`."""
    text = _every_digit(in_milliseconds(ns))
    return f"{text} ms" if unit else text


def seconds(ns: float | None) -> str:
    """A measured duration that lasts seconds: `2.4 s`."""
    return DASH if ns is None else _minus(f"{ns / NS_PER_S:z,.1f} s")


def clock(elapsed_s: float) -> str:
    """Format an elapsed time as `m:ss`."""
    whole = max(0, int(elapsed_s))
    return f"{whole // 60}:{whole % 60:02d}"


def about(length_s: float) -> str:
    """An estimated length of time, rounded up: `about 40 s`, `about 4 min`, `about 3 h`."""
    unit, unit_s = ("s", 1) if length_s <= 120 else ("min", 60) if length_s <= 7200 else ("h", 3600)
    return f"about {number(max(1, math.ceil(length_s / unit_s)))} {unit}"


def percent(ratio: float | None, against: float | None = None) -> str:
    """A measured share, as a ratio: `97.2 %`, `95 %`, `< 0.1 %`. `against` is the ratio that it is compared with: the
    text is on the same side of it as the share."""
    if ratio is None:
        return DASH
    exact = 100 * round(Fraction(str(ratio)), _DECIMALS_OF_RATIO)
    limit = None if against is None else 100 * Fraction(str(against))
    if 0 < exact < Fraction(1, 20):
        return "< 0.1 %"
    shown, decimals = exact, 0
    for decimals in range(1, _DECIMALS_OF_RATIO):
        shown = Fraction(math.floor(exact * 10**decimals + Fraction(1, 2)), 10**decimals)
        is_whole = shown.denominator == 1 and shown != exact
        if not is_whole and (limit is None or _side(shown, limit) == _side(exact, limit)):
            break
    return f"{f'{float(shown):,.{decimals}f}'.rstrip('0').rstrip('.')} %"


def _side(value: Fraction, limit: Fraction) -> int:
    return (value > limit) - (value < limit)


def error_rate_name(words: int, characters: int) -> str:
    """The name of a rate of word errors, of whose reference words some or all are characters."""
    return f"{counted_units(words, characters).replace('words', 'word').replace('characters', 'character')} error rate"


def counted_units(words: int, characters: int) -> str:
    """The units of `words` reference words, of which `characters` are characters: `words and characters`."""
    if not characters:
        return "words"
    return "characters" if characters >= words else "words and characters"


def declared_percent(ratio: float) -> str:
    """A configured share, such as a target, with every digit it has: `99.95 %`."""
    return f"{_every_digit(float(Fraction(str(ratio)) * 100))} %"


def share(part: int, whole: int) -> str:
    """`part` of `whole` as a percentage; DASH if `whole` is 0."""
    return percent(part / whole) if whole else DASH


def decimal(value: float | None) -> str:
    """A ratio that is not a share of a whole, such as audio per time: `1.25`."""
    return DASH if value is None else _minus(f"{value:z,.2f}")


def decibels(db: float) -> str:
    """A measured level or ratio of levels: `−4.8 dB`."""
    return _minus(f"{db:z,.1f} dB")


def declared_decibels(db: float) -> str:
    """A configured level or ratio of levels, with every digit it has: `10 dB`."""
    return f"{_every_digit(db)} dB"


def factor(times: float) -> str:
    """Format a factor by which something is exceeded: `×1.5`."""
    return f"×{times:,.1f}"


def rate(per_second: float | None, *, unit: bool = True) -> str:
    """Format a rate per second: `42.5/s`."""
    if per_second is None:
        return DASH
    text = _minus(f"{per_second:z,.1f}")
    return f"{text}/s" if unit else text


def number(value: float | None) -> str:
    """A whole number: `1,204`."""
    return DASH if value is None else _minus(f"{value:z,.0f}")


def count(how_many: int, singular: str, plural: str | None = None) -> str:
    """A number of things: `1 turn`, `1,204 turns`."""
    return f"{number(how_many)} {singular if how_many == 1 else plural or singular + 's'}"


def causes(by_cause: Mapping[str, int]) -> str:
    """Format the number of each cause: `3 generator, 1 telemetry lost`."""
    return ", ".join(f"{number(n)} {cause}" for cause, n in by_cause.items())


def turns(how_many: int) -> str:
    """Format a number of turns: `1 turn`, `1,204 turns`."""
    return count(how_many, "turn")


def estimate(text: str) -> str:
    """A formatted figure, marked as an estimate: `≈ 812 ms`."""
    return f"{APPROXIMATELY} {text}"


def estimate_if(is_estimate: bool, text: str) -> str:
    """A formatted figure, marked if it is an estimate."""
    return estimate(text) if is_estimate else text


def figure(value: float | None, kind: str, *, unit: bool = True) -> str:
    """A value of a metric by its kind: `ns`, `per_s`, `count`, `ratio`, or `share` for a ratio that is a share of a
    whole. Raises ValueError for another kind."""
    match kind:
        case "ns":
            return milliseconds(value, unit=unit)
        case "per_s":
            return rate(value, unit=unit)
        case "count":
            return number(value)
        case "ratio":
            return decimal(value)
        case "share":
            return percent(value)
        case _:
            raise ValueError(f"a figure of the kind {kind!r} has no format; known are ns, per_s, count, ratio, share")


def significant(value: float | None) -> str:
    """A number of unknown size, such as a cost, to three significant digits: `0.00421`."""
    return DASH if value is None else _every_digit(float(f"{value:.3g}")) if value else "0"


def signed_difference(value: float | None, kind: str) -> str:
    """A difference of two values, by their kind as in `figure`, with its direction: `+12.5 ms`, `−0.31 points` (of two
    shares, in percentage points), `+0.00421`."""
    if value is None:
        return DASH
    if kind == "ns":
        return signed_milliseconds(value)
    return _with_direction(_minus(f"{value * 100:z,.2f} points") if kind == "share" else significant(value))


def declared_points(difference: float) -> str:
    """A configured difference of two shares, in percentage points with every digit it has: `0.5 points`."""
    points = _every_digit(float(Fraction(str(difference)) * 100))
    return f"{points} point{'' if points == '1' else 's'}"


def declared_figure(value: float, kind: str) -> str:
    """A configured value of a metric, such as an objective's threshold, by its kind as in `figure`."""
    match kind:
        case "ns":
            return declared_milliseconds(value)
        case "share":
            return declared_percent(value)
        case "per_s":
            return f"{_every_digit(value)}/s"
        case _:
            return _every_digit(value)


def _every_digit(value: float) -> str:
    return _minus(f"{value:z,.12f}".rstrip("0").rstrip("."))


def _minus(text: str) -> str:
    return text.replace("-", MINUS)


def _with_direction(text: str) -> str:
    return text if text.startswith(MINUS) else f"+{text}"


CLEAN: Final = "clean"


def condition_label(noise: str | None, snr_db: float | None, channel: str | None) -> str:
    """A condition: `babble 10 dB, g711u`. `snr_db` is the requested level; a noise whose name contains a level keeps
    that name, and a clean channel is not named."""
    if not noise:
        shown = NOT_REPORTED
    elif noise in (CLEAN, "none"):
        shown = CLEAN
    else:
        shown = noise if snr_db is None or "dB" in noise else f"{noise} {declared_decibels(snr_db)}"
    return shown if channel in (None, CLEAN) else f"{shown}, {channel}"
