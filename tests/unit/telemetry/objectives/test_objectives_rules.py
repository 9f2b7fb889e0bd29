"""The rules made from objectives, as a YAML parser reads them."""

from typing import Any

import pytest
import yaml

from telemetry.objectives import series
from telemetry.objectives.error_budgets import burn_rates_from
from telemetry.objectives.objective import Objective
from telemetry.objectives.rules import RuleOptions, bad_ratio_series, eligible_series, rules_text
from telemetry.objectives.slo import default_objectives
from telemetry.sidecar.counts.families import FAMILIES


def _rules(text: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load(text)["groups"]
    assert [group["name"] for group in groups] == [
        "voiceprobe-objectives",
        "voiceprobe-telemetry",
        "voiceprobe-rollouts",
    ]
    assert [rule["alert"] for rule in groups[2]["rules"]] == ["VoiceRolloutRolledBack", "VoiceRolloutNotEvaluated"]
    return [rule for group in groups[:2] for rule in group["rules"]]


def test_each_window_is_recorded_once_and_each_objective_has_an_alert_for_each_burn_rate() -> None:
    rules = _rules(rules_text(default_objectives()))
    recorded = [rule["record"] for rule in rules if "record" in rule]
    windows = ("5m", "30m", "1h", "6h", "3d")
    assert recorded == [name for window in windows for name in (eligible_series(window), bad_ratio_series(window))]
    burning = [rule for rule in rules if rule.get("alert") == "VoiceObjectiveBudgetBurns"]
    assert [(rule["labels"]["objective"], rule["labels"]["burn_rate"]) for rule in burning] == [
        (objective.name, rate) for objective in default_objectives() for rate in ("14.4", "6", "1")
    ]
    assert {rule["labels"]["severity"] for rule in burning} == {"page", "ticket"}


def test_an_alert_asks_both_windows_and_the_number_of_turns() -> None:
    (objective,) = [each for each in default_objectives() if each.name == "good-turns"]
    rates = burn_rates_from(["14.4:2m:30s:page"], "here")
    alerts = [rule for rule in _rules(rules_text([objective], RuleOptions(rates))) if "alert" in rule]
    assert alerts[0]["expr"].splitlines() == [
        f'{bad_ratio_series("2m")}{{objective="good-turns"}} > 0.144',
        f'and {bad_ratio_series("30s")}{{objective="good-turns"}} > 0.144',
        f'and {eligible_series("2m")}{{objective="good-turns"}} >= 100',
    ]
    assert alerts[0]["annotations"]["summary"] == f"good-turns: {objective.sentence}"


def test_where_all_bad_turns_burn_more_slowly_the_alert_is_that_all_are_bad() -> None:
    objective = Objective("hits", "cache", 0.5)
    (alert,) = [rule for rule in _rules(rules_text([objective])) if rule.get("labels", {}).get("burn_rate") == "14.4"]
    assert alert["expr"].count(">= 1\n") == 2


def test_every_series_is_one_that_the_sidecar_exposes() -> None:
    exposed = {family.shown_name for family in FAMILIES}
    counters = (series.ELIGIBLE, series.GOOD, series.RECEIVED, series.REJECTED, series.REFUSED, series.BAD)
    assert {f"{name}_total" for name in counters} | {series.TARGET, series.MISSING} <= exposed


def test_texts_cannot_break_out_of_an_expression_or_an_annotation() -> None:
    objective = Objective("o", "outcome", 0.9, outcomes=("ok",), cohort='a"} or vector(1) # {{ $labels }}\n\\')
    alerts = [rule for rule in _rules(rules_text([objective])) if rule.get("alert") == "VoiceObjectiveNotCounted"]
    assert r'promise="90 % of turns (a\"} or vector(1) # {{ $labels }}\n\\): outcome ok"' in alerts[0]["expr"]
    assert '(a"} or vector(1) # {{ "{{" }} $labels }}' in alerts[0]["annotations"]["description"]


def test_there_are_no_rules_of_nothing() -> None:
    with pytest.raises(ValueError, match="no objectives"):
        rules_text([])
    with pytest.raises(ValueError, match="'1y' is not a time"):
        rules_text(default_objectives(), RuleOptions(quiet_after="1y"))
