"""Burn rates: how many times faster than permitted a service uses up the error budget of an objective. Pure.

At a burn rate of 1 the permitted bad turns are used up exactly at the end of the objective's period. An alert looks at
two windows: a long one, in which enough of the budget has gone to matter, and a short one, so that it ends soon after
the fault has. The defaults are those of Google's SRE workbook, chapter "Alerting on SLOs", for a period of 30 days.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, get_args

from telemetry.model.errors import ConfigError
from telemetry.model.stats import minimum_for_target
from telemetry.objectives.objective import Objective

Severity = Literal["page", "ticket"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
# How probable a page may be while the objective is exactly met: so many turns a page needs, at least.
FALSE_ALARM_MAX: Final = 0.001

_MS_PER: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,5})(ms|s|m|h|d|w)")
_FACTOR: Final = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4})?")
_TURNS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class BurnRate:
    """An alert at `factor` times the permitted rate of bad turns, in both windows (as Prometheus writes durations)."""

    factor: Fraction
    long: str
    short: str
    severity: Severity

    @property
    def name(self) -> str:
        """The factor as people write it: `14.4`."""
        return f"{float(self.factor):g}"

    def bad_ratio(self, objective: Objective) -> Fraction:
        """The share of bad turns beyond which it alerts, at most 1: then it alerts if all turns are bad."""
        return min(self.factor * _budget(objective), Fraction(1))

    def minimum_turns(self, objective: Objective) -> int:
        """How many turns the long window needs: those of a verdict on the objective; and for a page, so many that a
        service which exactly meets the objective causes one with a probability of at most 0.1 %. Turns are taken as
        independent there."""
        least = minimum_for_target(objective.target)
        if self.factor <= 1:
            return least
        return _distinguishing(least, _budget(objective), self.bad_ratio(objective))


DEFAULT_BURN_RATES: Final = (
    BurnRate(Fraction("14.4"), "1h", "5m", "page"),
    BurnRate(Fraction(6), "6h", "30m", "page"),
    BurnRate(Fraction(1), "3d", "6h", "ticket"),
)


def window_ms(window: str) -> int | None:
    """The length of a window such as `5m`; None for a text that is not one."""
    found = _WINDOW.fullmatch(window)
    return int(found[1]) * _MS_PER[found[2]] if found else None


def burn_rates_from(texts: Sequence[str], where: str) -> tuple[BurnRate, ...]:
    """Burn rates as `FACTOR:LONG:SHORT:SEVERITY` says them, such as `14.4:1h:5m:page`. Raises ConfigError with a line
    for each fault; `where` names their source."""
    found: list[BurnRate] = []
    faults: list[str] = []
    for text in texts:
        fault, rate = _read(text)
        if rate is None:
            faults.append(f"{text!r}: {fault}")
        elif rate in found:
            faults.append(f"{text!r} stands there twice")
        else:
            found.append(rate)
    if faults:
        raise ConfigError(where, faults)
    return tuple(found)


def _read(text: str) -> tuple[str, BurnRate | None]:
    parts = text.split(":")
    if len(parts) != 4:
        return "write FACTOR:LONG:SHORT:SEVERITY, such as 14.4:1h:5m:page", None
    factor, long, short, severity = parts
    if not _FACTOR.fullmatch(factor) or not Fraction(factor):
        return f"the factor {factor!r} is not a number above 0", None
    lengths = [window_ms(each) for each in (long, short)]
    if lengths[0] is None or lengths[1] is None:
        return "a window is a whole number with ms, s, m, h, d or w, such as 5m", None
    if lengths[0] <= lengths[1]:
        return f"the long window {long} must be longer than the short one, {short}", None
    if severity not in SEVERITIES:
        return f"the severity {severity!r} is not one of {', '.join(SEVERITIES)}", None
    return "", BurnRate(Fraction(factor), long, short, severity)


def _budget(objective: Objective) -> Fraction:
    return 1 - Fraction(str(objective.target))


def _distinguishing(least: int, budget: Fraction, bad_ratio: Fraction) -> int:
    """From `least`, the first number of turns of which more than `bad_ratio` (all, where that is 1) are bad with a
    probability of at most 0.1 %, where each is bad with the probability `budget`."""
    # Imported where it is used: it takes a sixth of a second.
    from scipy import special

    turns = least
    while turns < _TURNS_MAX:
        permitted = turns - 1 if bad_ratio == 1 else int(turns * bad_ratio)
        if float(special.bdtrc(permitted, turns, float(budget))) <= FALSE_ALARM_MAX:
            break
        turns += max(1, turns // 50)
    return turns
