"""Objectives as rules, burn rates, and documents of Sloth and of Pyrra."""

import math
import re
from fractions import Fraction
from typing import Any

import pytest
import yaml

from telemetry.model.errors import ConfigError
from telemetry.objectives import series
from telemetry.objectives.error_budgets import (
    DEFAULT_BURN_RATES,
    FALSE_ALARM_MAX,
    BurnRate,
    burn_rates_from,
    window_ms,
)
from telemetry.objectives.exports import identifier, pyrra_text, sloth_text
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


def test_windows_are_recorded_once_with_alert_per_burn_rate() -> None:
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
    (objective,) = [objective for objective in default_objectives() if objective.name == "good-turns"]
    rates = burn_rates_from(["14.4:2m:30s:page"], "here")
    alerts = [rule for rule in _rules(rules_text([objective], RuleOptions(rates))) if "alert" in rule]
    assert alerts[0]["expr"].splitlines() == [
        f'{bad_ratio_series("2m")}{{objective="good-turns"}} > 0.144',
        f'and {bad_ratio_series("30s")}{{objective="good-turns"}} > 0.144',
        f'and {eligible_series("2m")}{{objective="good-turns"}} >= 100',
    ]
    assert alerts[0]["annotations"]["summary"] == f"good-turns: {objective.sentence}"


def test_alert_requires_all_bad_where_all_bad_burns_more_slowly() -> None:
    objective = Objective("hits", "cache", 0.5)
    (alert,) = [rule for rule in _rules(rules_text([objective])) if rule.get("labels", {}).get("burn_rate") == "14.4"]
    assert alert["expr"].count(">= 1\n") == 2


def test_every_series_is_one_that_the_sidecar_exposes() -> None:
    exposed = {family.shown_name for family in FAMILIES}
    counters = (series.ELIGIBLE, series.GOOD, series.RECEIVED, series.REJECTED, series.REFUSED, series.BAD)
    assert {f"{name}_total" for name in counters} | {series.TARGET, series.MISSING} <= exposed


def test_texts_cannot_escape_expression_or_annotation() -> None:
    objective = Objective("o", "outcome", 0.9, outcomes=("ok",), cohort='a"} or vector(1) # {{ $labels }}\n\\')
    alerts = [rule for rule in _rules(rules_text([objective])) if rule.get("alert") == "VoiceObjectiveNotCounted"]
    assert r'promise="90 % of turns (a\"} or vector(1) # {{ $labels }}\n\\): outcome ok"' in alerts[0]["expr"]
    assert '(a"} or vector(1) # {{ "{{" }} $labels }}' in alerts[0]["annotations"]["description"]


def test_there_are_no_rules_of_nothing() -> None:
    with pytest.raises(ValueError, match="no objectives"):
        rules_text([])
    with pytest.raises(ValueError, match="'1y' is not a time"):
        rules_text(default_objectives(), RuleOptions(quiet_after="1y"))


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
    """Return the chance of more than `permitted` bad turns of `turns`, by the sum of the binomial distribution's
    terms."""

    def term(bad: int) -> float:
        ways = math.lgamma(turns + 1) - math.lgamma(bad + 1) - math.lgamma(turns - bad + 1)
        return math.exp(ways + bad * math.log(probability) + (turns - bad) * math.log1p(-probability))

    return math.fsum(map(term, range(permitted + 1, turns + 1)))


@pytest.mark.parametrize("target", [0.2, 0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("factor", ["2", "6", "14.4"])
def test_page_needs_so_many_turns_that_chance_rarely_fires_it(target: float, factor: str) -> None:
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
    assert "is there twice" in raised.value.faults[-1]


@pytest.mark.parametrize(
    ("text", "ms"), [("250ms", 250), ("90s", 90_000), ("3d", 259_200_000), ("1.5h", None), ("", None)]
)
def test_windows(text: str, ms: int | None) -> None:
    assert window_ms(text) == ms


ODD = Objective('a"}\n{{ $x }} É', "outcome", 0.999, outcomes=("ok",), window="7d")
OBJECTIVES = [*default_objectives(), ODD]
# A metric with matchers and nothing else: the only thing that Pyrra takes.
SELECTOR = re.compile(r'[a-z_:][a-z0-9_:]*\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*\}')
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# github.com/slok/sloth, pkg/prometheus/api/v1: names of fields with their types, of what is written.
SLOTH: dict[str, Any] = {
    "version": str,
    "service": str,
    "labels": {"source": str},
    "slos": [
        {
            "name": str,
            "objective": float,
            "description": str,
            "sli": {"events": {"error_query": str, "total_query": str}},
            "alerting": {
                "name": str,
                "labels": {"objective": str},
                "annotations": {"summary": str},
                "page_alert": {"labels": {"severity": str}},
                "ticket_alert": {"labels": {"severity": str}},
            },
        }
    ],
}
# github.com/pyrra-dev/pyrra, config/crd/bases/pyrra.dev_servicelevelobjectives.yaml.
PYRRA: dict[str, Any] = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str, "namespace": str, "labels": {"prometheus": str, "role": str}},
    "spec": {
        "description": str,
        "target": str,
        "window": str,
        "indicator": {"ratio": {"errors": {"metric": str}, "total": {"metric": str}}},
        "alerting": {"name": str, "absentName": str},
    },
}


def _fits(actual: Any, expected: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert set(actual) == set(expected), where
        for name, part in expected.items():
            _fits(actual[name], part, f"{where}.{name}")
    elif isinstance(expected, list):
        assert actual, where
        for member in actual:
            _fits(member, expected[0], f"{where}[]")
    else:
        assert isinstance(actual, expected), (where, actual)


def test_sloths_document_is_one_of_its_version() -> None:
    document = yaml.safe_load(sloth_text(OBJECTIVES))
    _fits(document, SLOTH, "sloth")
    assert document["version"] == "prometheus/v1"
    names = [entry["name"] for entry in document["slos"]]
    assert len(set(names)) == len(names) == len(OBJECTIVES)
    for slo, objective in zip(document["slos"], OBJECTIVES, strict=True):
        assert NAME.fullmatch(slo["name"])
        assert slo["objective"] == pytest.approx(objective.target * 100)
        assert 0 < slo["objective"] <= 100
        for query in slo["sli"]["events"].values():
            assert query.count("{{.window}}") == 1
            # Any other text that looks like a Go template is kept with its braces.
            assert "{{ $x" not in query.replace('{{ "{{" }} $x', "")
    assert document["slos"][-1]["objective"] == 99.9


def test_pyrras_documents_are_of_its_kind() -> None:
    documents = list(yaml.safe_load_all(pyrra_text(OBJECTIVES)))
    assert len(documents) == len(OBJECTIVES)
    for document, objective in zip(documents, OBJECTIVES, strict=True):
        _fits(document, PYRRA, "pyrra")
        assert (document["apiVersion"], document["kind"]) == ("pyrra.dev/v1alpha1", "ServiceLevelObjective")
        assert NAME.fullmatch(document["metadata"]["name"])
        spec = document["spec"]
        assert float(spec["target"]) == pytest.approx(objective.target * 100)
        assert window_ms(spec["window"]) == window_ms(objective.window or "28d")
        metrics = [part["metric"] for part in spec["indicator"]["ratio"].values()]
        assert all(SELECTOR.fullmatch(metric) for metric in metrics), metrics
        assert metrics[0] != metrics[1]


def test_names_that_differ_stay_different() -> None:
    given = ["voice-to-voice", "Voice to voice", "voice--to-voice", "é", "è", "", "x" * 70, "x" * 71, "-a"]
    identifiers = [identifier(text) for text in given]
    assert identifiers[0] == given[0]
    assert len(set(identifiers)) == len(given)
    assert all(NAME.fullmatch(text) for text in identifiers), identifiers


def test_without_objectives_there_is_no_document() -> None:
    for write in (sloth_text, pyrra_text):
        with pytest.raises(ValueError, match="no objectives"):
            write([])
