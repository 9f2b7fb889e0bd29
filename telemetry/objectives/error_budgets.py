"""Error budgets of objectives, and burn rates: how many times faster than permitted a service uses one up. Pure.

At a burn rate of 1 the permitted bad turns are used up exactly at the end of the objective's period. An alert looks at
two windows: a long one, in which enough of the budget has gone to matter, and a short one, so that it ends soon after
the fault has. The defaults are those of Google's SRE workbook, chapter "Alerting on SLOs", for a period of 30 days.

The windows end at the current time. The error budget is that of the longest one: the share of its eligible turns that
may be bad. A window with too few turns has a burn rate, and supports no claim. A burn rate counts the turns that are
known to be bad: open ones (telemetry.objectives.judgment) are eligible and use up nothing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, get_args

from telemetry.model.errors import ConfigError
from telemetry.model.stats import minimum_for_target
from telemetry.objectives.judgment import EligibleTurns, is_met
from telemetry.objectives.objective import Counted, Objective

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
        """Return how many turns the long window needs: those of a verdict on the objective; and for a page, so many
        that a service which exactly meets the objective causes one with a probability of at most 0.1 %. Turns are taken
        as independent there."""
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
    match = _WINDOW.fullmatch(window)
    return int(match[1]) * _MS_PER[match[2]] if match else None


def burn_rates_from(texts: Sequence[str], where: str) -> tuple[BurnRate, ...]:
    """Burn rates as `FACTOR:LONG:SHORT:SEVERITY` says them, such as `14.4:1h:5m:page`. Raises ConfigError with a line
    for each fault; `where` names their source."""
    rates: list[BurnRate] = []
    faults: list[str] = []
    for text in texts:
        fault, rate = _read(text)
        if rate is None:
            faults.append(f"{text!r}: {fault}")
        elif rate in rates:
            faults.append(f"{text!r} is there twice")
        else:
            rates.append(rate)
    if faults:
        raise ConfigError(where, faults)
    return tuple(rates)


def _read(text: str) -> tuple[str, BurnRate | None]:
    parts = text.split(":")
    if len(parts) != 4:
        return "write FACTOR:LONG:SHORT:SEVERITY, such as 14.4:1h:5m:page", None
    factor, long, short, severity = parts
    if not _FACTOR.fullmatch(factor) or not Fraction(factor):
        return f"the factor {factor!r} is not a number above 0", None
    lengths = [window_ms(window) for window in (long, short)]
    if lengths[0] is None or lengths[1] is None:
        return "a window is a whole number with ms, s, m, h, d or w, such as 5m", None
    if lengths[0] <= lengths[1]:
        return f"the long window {long} must be longer than the short one, {short}", None
    if severity not in SEVERITIES:
        return f"the severity {severity!r} is not one of {', '.join(SEVERITIES)}", None
    return "", BurnRate(Fraction(factor), long, short, severity)


def _budget(objective: Objective) -> Fraction:
    """The share of turns that may be bad."""
    return 1 - Fraction(str(objective.target))


def _distinguishing(least: int, budget: Fraction, bad_ratio: Fraction) -> int:
    """The first number of turns, from `least` on, of which more than `bad_ratio` (all, where that is 1) are bad with a
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


# What a page shows, and what the alerts look at beside.
SHOWN_WINDOWS: Final = ("1h", "6h", "1d", "3d", "7d", "28d")
SHORT_WINDOWS: Final = ("5m", "30m")
PERIOD: Final = SHOWN_WINDOWS[-1]
PERIOD_DAYS: Final = 28
DAY_NS: Final = 86_400 * 1_000_000_000
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class WindowBudget:
    """One window: `burn_rate` 1 uses up the budget exactly at the end of the period; None without an eligible turn.
    `is_enough` says whether there are enough turns for a claim."""

    window: str
    counts: EligibleTurns
    burn_rate: float | None
    is_enough: bool


@dataclass(frozen=True, slots=True)
class BurnAlert:
    """One alert: whether both of its windows exceed its factor; None while the long one has too few turns."""

    factor: float
    long: str
    short: str
    severity: Severity
    fires: bool | None
    minimum_turns: int


@dataclass(frozen=True, slots=True)
class DayBudget:
    """A day of the period, `days_ago` from 0 for the newest 24 hours: its turns, and how much of the whole period's
    budget was left at its end; None before its first eligible turn."""

    days_ago: int
    counts: EligibleTurns
    budget_left: float | None


@dataclass(frozen=True, slots=True)
class ErrorBudget:
    """An objective over its windows. `budget_left` is 1 with no bad turn in the period, 0 when all permitted ones were,
    negative beyond; None without an eligible turn. `is_met` is None while the period has too few turns, and where its
    open turns could turn it."""

    name: str
    title: str
    counted: Counted
    sentence: str
    target: float
    minimum_turns: int
    windows: tuple[WindowBudget, ...]
    alerts: tuple[BurnAlert, ...]
    days: tuple[DayBudget, ...]
    budget_left: float | None
    is_met: bool | None

    @property
    def fires(self) -> bool:
        """Whether any of its alerts does."""
        return any(alert.fires for alert in self.alerts)


def window_ns(window: str) -> int:
    """The length of a window such as `6h`. Raises ValueError for a text that is not one."""
    length_ms = window_ms(window)
    if length_ms is None:
        raise ValueError(f"{window!r} is not a window")
    return length_ms * _NS_PER_MS


def error_budget(
    objective: Objective, within: Callable[[int], EligibleTurns], days: Mapping[int, EligibleTurns]
) -> ErrorBudget:
    """An objective's budget. `within` gives the counts of the last so many ns, `days` those of each day of the period
    that has turns, by how many days ago it began to be counted back from now."""
    windows = {name: _window(objective, name, within) for name in (*SHORT_WINDOWS, *SHOWN_WINDOWS)}
    period = windows[PERIOD].counts
    left = _budget_left(objective, period.bad, period.eligible)
    return ErrorBudget(
        name=objective.name,
        title=objective.display_name or objective.name,
        counted=objective.counts,
        sentence=objective.sentence,
        target=objective.target,
        minimum_turns=minimum_for_target(objective.target),
        windows=tuple(windows[name] for name in SHOWN_WINDOWS),
        alerts=tuple(_alert(objective, rate, windows) for rate in DEFAULT_BURN_RATES),
        days=_days(objective, days, period),
        budget_left=left,
        is_met=is_met(period, objective.target) if windows[PERIOD].is_enough else None,
    )


def missed_first(budgets: Sequence[ErrorBudget]) -> tuple[ErrorBudget, ...]:
    """Sort the budgets: those with a firing alert first, then those that are used up, each by what is left."""

    def order(of: ErrorBudget) -> tuple[int, float]:
        rank = 0 if of.fires else 1 if of.is_met is False else 2 if of.is_met else 3
        return rank, 2.0 if of.budget_left is None else of.budget_left

    return tuple(sorted(budgets, key=order))


def _window(objective: Objective, name: str, within: Callable[[int], EligibleTurns]) -> WindowBudget:
    counts = within(window_ns(name))
    rate = _burn_rate(objective, counts)
    return WindowBudget(name, counts, rate, counts.decided >= minimum_for_target(objective.target))


def _burn_rate(objective: Objective, counts: EligibleTurns) -> float | None:
    if not counts.eligible:
        return None
    permitted = _budget(objective)
    bad = Fraction(counts.bad, counts.eligible)
    if not permitted:
        return 0.0 if not bad else float("inf")
    return float(bad / permitted)


def _budget_left(objective: Objective, bad: int, eligible: int) -> float | None:
    if not eligible:
        return None
    permitted = _budget(objective) * eligible
    if not permitted:
        return 1.0 if not bad else float("-inf")
    return float(1 - bad / permitted)


def _alert(objective: Objective, rate: BurnRate, windows: Mapping[str, WindowBudget]) -> BurnAlert:
    long, short = windows[rate.long], windows[rate.short]
    least = rate.minimum_turns(objective)
    fires = None
    if long.counts.eligible >= least:
        fires = all(_is_beyond(objective, rate, window.counts) for window in (long, short))
    return BurnAlert(float(rate.factor), rate.long, rate.short, rate.severity, fires, least)


def _is_beyond(objective: Objective, rate: BurnRate, counts: EligibleTurns) -> bool:
    """Return whether it fires by the rule for Prometheus: beyond the share, or all turns where the share is 1."""
    if not counts.eligible:
        return False
    share, limit = Fraction(counts.bad, counts.eligible), rate.bad_ratio(objective)
    return share > limit or (limit == 1 and share == 1)


def _days(objective: Objective, days: Mapping[int, EligibleTurns], period: EligibleTurns) -> tuple[DayBudget, ...]:
    budgets: list[DayBudget] = []
    so_far = EligibleTurns()
    for days_ago in range(PERIOD_DAYS - 1, -1, -1):
        counts = days.get(days_ago, EligibleTurns())
        so_far += counts
        # Before the first turn nothing is known, which is not the same as a budget that nobody used.
        left = _budget_left(objective, so_far.bad, period.eligible) if so_far.eligible else None
        budgets.append(DayBudget(days_ago, counts, left))
    return tuple(budgets)
