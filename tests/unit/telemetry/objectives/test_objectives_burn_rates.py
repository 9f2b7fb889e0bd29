"""Burn rates: what they alert at, from how many turns, and how they are written."""

import math
from fractions import Fraction

import pytest

from telemetry.model.errors import ConfigError
from telemetry.objectives.error_budgets import (
    DEFAULT_BURN_RATES,
    FALSE_ALARM_MAX,
    BurnRate,
    burn_rates_from,
    window_ms,
)
from telemetry.objectives.objective import Objective


def objective(target: float) -> Objective:
    return Objective("o", "outcome", target, outcomes=("ok",))


def test_the_defaults_are_those_of_the_sre_workbook() -> None:
    written = ("14.4:1h:5m:page", "6:6h:30m:page", "1:3d:6h:ticket")
    assert burn_rates_from(written, "here") == DEFAULT_BURN_RATES
    # The share of a budget of 30 days that each lets go before it alerts: 2 %, 5 % and 10 %.
    month_ms = window_ms("30d") or 0
    shares = [rate.factor * (window_ms(rate.long) or 0) / month_ms for rate in DEFAULT_BURN_RATES]
    assert shares == [Fraction(2, 100), Fraction(5, 100), Fraction(10, 100)]


@pytest.mark.parametrize(
    ("target", "factor", "ratio"),
    [(0.95, "14.4", 0.72), (0.95, "6", 0.3), (0.99, "14.4", 0.144), (0.95, "1", 0.05), (0.9, "14.4", 1.0)],
)
def test_the_share_of_bad_turns(target: float, factor: str, ratio: float) -> None:
    rate = BurnRate(Fraction(factor), "1h", "5m", "page")
    assert float(rate.bad_ratio(objective(target))) == ratio


def _chance_of_more(turns: int, permitted: int, probability: float) -> float:
    """Of more than `permitted` bad turns of `turns`, by the sum of the binomial distribution's terms."""

    def term(bad: int) -> float:
        ways = math.lgamma(turns + 1) - math.lgamma(bad + 1) - math.lgamma(turns - bad + 1)
        return math.exp(ways + bad * math.log(probability) + (turns - bad) * math.log1p(-probability))

    return math.fsum(map(term, range(permitted + 1, turns + 1)))


@pytest.mark.parametrize("target", [0.2, 0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("factor", ["2", "6", "14.4"])
def test_a_page_needs_so_many_turns_that_chance_hardly_causes_one(target: float, factor: str) -> None:
    rate = BurnRate(Fraction(factor), "1h", "5m", "page")
    turns, limit = rate.minimum_turns(objective(target)), rate.bad_ratio(objective(target))

    def chance(of: int) -> float:
        return _chance_of_more(of, of - 1 if limit == 1 else math.floor(of * limit), 1 - target)

    assert turns >= 20
    assert chance(turns) <= FALSE_ALARM_MAX
    if turns > 100:
        assert chance(turns // 2) > FALSE_ALARM_MAX, "half as many would not do"


@pytest.mark.parametrize(("target", "turns"), [(0.95, 20), (0.99, 100), (0.5, 20)])
def test_a_ticket_needs_the_turns_of_a_verdict(target: float, turns: int) -> None:
    assert DEFAULT_BURN_RATES[-1].minimum_turns(objective(target)) == turns


def test_all_faults_are_reported_at_once() -> None:
    faulty = {
        "14.4": "write FACTOR:LONG:SHORT:SEVERITY",
        "0:1h:5m:page": "the factor '0' is not a number above 0",
        "-1:1h:5m:page": "the factor '-1' is not",
        "2:1h:5:page": "a window is a whole number with",
        "2:0h:5m:page": "a window is a whole number with",
        "2:5m:300s:page": "the long window 5m must be longer than the short one, 300s",
        "2:1h:5m:alarm": "the severity 'alarm' is not one of page, ticket",
    }
    with pytest.raises(ConfigError) as raised:
        burn_rates_from([*faulty, "3:1h:5m:page", "3:1h:5m:page"], "--burn-rate")
    assert len(raised.value.faults) == len(faulty) + 1
    for fault, expected in zip(raised.value.faults, faulty.values(), strict=False):
        assert expected in fault
    assert "stands there twice" in raised.value.faults[-1]


@pytest.mark.parametrize(
    ("text", "ms"), [("250ms", 250), ("90s", 90_000), ("3d", 259_200_000), ("1.5h", None), ("", None)]
)
def test_windows(text: str, ms: int | None) -> None:
    assert window_ms(text) == ms
