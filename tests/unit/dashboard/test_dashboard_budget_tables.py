"""The chart of an error budget over its days: what is drawn, and what is said where more was overspent than that."""

import json

from dashboard import budget_tables
from dashboard.palette import LIGHT
from telemetry.objectives.error_budgets import DayBudget, EligibleTurns, ErrorBudget


def budget(*left: float | None) -> ErrorBudget:
    days = tuple(
        DayBudget(ago, EligibleTurns(0, 0) if share is None else EligibleTurns(93, 100), share)
        for ago, share in zip(range(len(left) - 1, -1, -1), left, strict=True)
    )
    return ErrorBudget("answer", "The answer", "turns", "95 % of turns", 0.95, 100, (), (), days, left[-1], False)


def test_a_day_is_drawn_at_its_share_and_a_day_without_turns_not_at_all() -> None:
    rows = budget_tables.days_rows(budget(None, 1.0, 0.25, -1.5))
    assert [(row["day"], row["left"]) for row in rows] == [(-3, None), (-2, 1.0), (-1, 0.25), (0, -1.5)]


def test_what_is_overspent_beyond_the_axis_is_named_in_full() -> None:
    (row,) = budget_tables.days_rows(budget(-99.0))
    assert row["left"] == -2.0
    assert row["text"] == "overspent ×100.0"
    assert budget_tables.days_table(budget(-99.0)).rows[0][1] == "overspent ×100.0"


def test_the_axis_begins_at_all_of_the_budget_and_ends_with_or_less() -> None:
    spec = budget_tables.days_spec(LIGHT)
    line = next(each for each in spec["layer"] if each["mark"]["type"] == "line")
    assert line["encoding"]["y"]["scale"]["domainMax"] == 1
    assert "datum.value <= -2.0 ? '≤ '" in json.dumps(line["encoding"]["y"]["axis"], ensure_ascii=False)
