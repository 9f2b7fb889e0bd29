"""Recording and alert rules for Prometheus, made from objectives. Pure: the text of a rule file.

The rules are over what the sidecar counts (`telemetry.objectives.series`): eligible and good turns by the one rule of
`telemetry.objectives.slo`. Where there is no data nothing is healthy: that is an alert, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from telemetry.objectives import series
from telemetry.objectives.error_budgets import DEFAULT_BURN_RATES, BurnRate, window_ms
from telemetry.objectives.exports import quoted, template, yaml_text
from telemetry.objectives.objective import Objective

QUIET_AFTER: Final = "1h"

_BY: Final = ", ".join(label for label in series.LABELS if label != "cohort")
# Labels that stay when a sidecar is redeployed; its instance changes then.
_BY_TARGET: Final = "sum by (job, service)"
_HEADER: Final = """\
# Recording and alert rules for Prometheus, made from objectives by `voiceprobe rules`: do not edit them.
# The sidecar must count the same objectives (--slo).
"""
Rule = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """`quiet_after` is the time without a turn, or without a sidecar's answer, after which an alert fires."""

    burn_rates: Sequence[BurnRate] = DEFAULT_BURN_RATES
    quiet_after: str = QUIET_AFTER


def rules_text(objectives: Sequence[Objective], options: RuleOptions | None = None) -> str:
    """A rule file in YAML. Raises ValueError without objectives, and for a time that Prometheus does not know."""
    options = options or RuleOptions()
    if not objectives or window_ms(options.quiet_after) is None:
        raise ValueError(f"no objectives, or {options.quiet_after!r} is not a time such as 1h")
    windows = {window for rate in options.burn_rates for window in (rate.long, rate.short)}
    recorded = [rule for window in sorted(windows, key=_length) for rule in _recorded(window)]
    # In one group, so that an alert sees what was recorded at the same moment.
    burning = [_burn_alert(objective, rate) for objective in objectives for rate in options.burn_rates]
    without_data = [*_telemetry_alerts(options), *_data_alerts(objectives, options)]
    groups = [{"name": "voiceprobe-objectives", "rules": recorded + burning}] if recorded else []
    groups.append({"name": "voiceprobe-telemetry", "rules": without_data})
    groups.append({"name": "voiceprobe-rollouts", "rules": list(_rollout_alerts())})
    return _HEADER + yaml_text({"groups": groups})


def eligible_series(window: str) -> str:
    """The recorded number of eligible turns in a window, by objective, stage, source and service."""
    return f"objective:{series.ELIGIBLE}:increase{window}"


def bad_ratio_series(window: str) -> str:
    """The recorded share of bad ones among the eligible turns in a window, by objective, stage, source and service."""
    return f"objective:voice_objective_bad_turns:ratio_increase{window}"


def _length(window: str) -> int:
    return window_ms(window) or 0


def _recorded(window: str) -> list[Rule]:
    eligible, bad = (
        f"sum by ({_BY}) (increase({name}_total[{window}]))" for name in (series.ELIGIBLE, series.BAD_TURNS)
    )
    return [
        {"record": eligible_series(window), "expr": eligible},
        # Without eligible turns there is no ratio: 0 / 0 is not a number, and no alert is about that.
        {"record": bad_ratio_series(window), "expr": f"{bad} / {eligible_series(window)}"},
    ]


def _burn_alert(objective: Objective, rate: BurnRate) -> Rule:
    chosen = f"{{objective={quoted(objective.name)}}}"
    limit = rate.bad_ratio(objective)
    # Where even all bad turns burn the budget more slowly than that, the alert is that all are bad.
    beyond = ">= 1" if limit == 1 else f"> {float(limit):.10g}"
    conditions = (
        f"{bad_ratio_series(rate.long)}{chosen} {beyond}",
        f"{bad_ratio_series(rate.short)}{chosen} {beyond}",
        f"{eligible_series(rate.long)}{chosen} >= {rate.minimum_turns(objective)}",
    )
    sentence = "{{ $value | humanizePercentage }}" + f" of the {objective.counts} of the last {rate.long} were bad"
    return {
        "alert": "VoiceObjectiveBudgetBurns",
        "expr": "\nand ".join(conditions),
        "labels": {
            "severity": rate.severity,
            "objective": template(objective.name),
            "burn_rate": rate.name,
            "window": rate.long,
        },
        "annotations": {
            "summary": template(f"{objective.name}: {objective.sentence}"),
            "description": f"{sentence}: a burn rate of {rate.name} or more. Source: "
            "{{ $labels.source }} {{ $labels.service_name }}",
        },
    }


def _telemetry_alerts(options: RuleOptions) -> Iterable[Rule]:
    window = options.quiet_after
    received = f"{series.RECEIVED}_total"
    lost = " + ".join(
        f"sum(increase({name}_total[{window}]))" for name in (series.REJECTED, series.REFUSED, series.BAD)
    )
    short = min((rate.short for rate in options.burn_rates), key=_length, default=window)
    yield {
        "alert": "VoiceTelemetryAbsent",
        "expr": f"absent({received})\n"
        f"or ({_BY_TARGET} ({received} offset {window}) unless {_BY_TARGET} ({received}))\n"
        f"or ({_stopped(received, _BY_TARGET, window)})\n"
        f"or ({_stopped(f'{series.SERVICE_TURNS}_total', f'sum by ({series.SERVICE_LABEL})', window)})",
        "for": short,
        "labels": {"severity": "page"},
        "annotations": {
            "summary": "Nothing is known of {{ or $labels.service_name $labels.service $labels.job `any turn` }}: no "
            "sidecar answers for it, or it has stopped reporting.",
        },
    }
    eligible = f"{series.ELIGIBLE}_total"
    yield {
        "alert": "VoiceTurnsAbsent",
        # A sidecar that was restarted has no series before its first turn.
        "expr": f"sum(increase({eligible}[{window}])) == 0\n"
        f"or (absent_over_time({eligible}[{window}]) and on () count({received} offset {window}))",
        "for": short,
        "labels": {"severity": "ticket"},
        "annotations": {
            "summary": f"No turn counted for any objective in {window}: whether they are met is not known."
        },
    }
    yield {
        "alert": "VoiceTurnsMissing",
        "expr": f"delta({series.MISSING}[{window}]) > 0",
        "labels": {"severity": "ticket"},
        "annotations": {
            "summary": "Turns were lost on their way to the sidecar: figures may be better than the service."
        },
    }
    yield {
        "alert": "VoiceTelemetryRefused",
        "expr": f"{lost} > 0",
        "labels": {"severity": "ticket"},
        "annotations": {"summary": "The sidecar refused telemetry: invalid, or more than it or its disk could take."},
    }


def _stopped(counter: str, by: str, window: str) -> str:
    """Find what a counter counted within a day and not in the window, in any instance, while it counts others:
    where nothing is counted at all, nobody may have called. The counter of a new instance may begin with what no
    increase contains."""
    before = "1d" if 2 * _length(window) <= _length("1d") else f"{2 * _length(window) // 1000}s"
    return (
        f"{by} (increase({counter}[{before}])) > 0\n"
        f"unless {by} (increase({counter}[{window}])) > 0\n"
        f"unless {by} ({counter} unless {counter} offset {window}) > 0\n"
        f"and on () sum(increase({counter}[{window}])) > 0"
    )


def _rollout_alerts() -> Iterable[Rule]:
    by = "{{ $labels." + series.ROLLOUT_LABEL + " }}"
    yield {
        "alert": "VoiceRolloutRolledBack",
        "expr": f'{series.ROLLOUT_VERDICT}{{verdict="roll_back"}} == 1',
        "labels": {"severity": "page"},
        "annotations": {
            "summary": f"The rollout {by} is to be rolled back: the candidate is shown to be worse.",
            "description": "GET /v1/rollouts/" + by + "/verdict says in what, and by how much.",
        },
    }
    yield {
        "alert": "VoiceRolloutNotEvaluated",
        "expr": f"time() - {series.ROLLOUT_EVALUATED} > 3 * {series.ROLLOUT_EVERY} + 30",
        "for": "30s",
        "labels": {"severity": "ticket"},
        "annotations": {
            "summary": f"The rollout {by} has no verdict of now: nothing is promoted or rolled back by it.",
            "description": "GET /v1/rollouts says why: a plan, a log or a store that cannot be used, or a full disk.",
        },
    }


def _data_alerts(objectives: Iterable[Objective], options: RuleOptions) -> Iterable[Rule]:
    window, total = options.quiet_after, f"{series.ELIGIBLE}_total"
    for objective in objectives:
        name = quoted(objective.name)
        labels = {"severity": "ticket", "objective": template(objective.name)}
        yield {
            "alert": "VoiceObjectiveWithoutData",
            "expr": f"sum by (objective) (increase({total}{{objective={name}}}[{window}])) == 0\n"
            f"and on () sum(increase({total}[{window}])) > 0",
            "labels": labels,
            "annotations": {
                "summary": f"{template(objective.name)}: there are turns, but none that counts for this objective.",
                "description": "If the service does not show its metric, leave the objective out.",
            },
        }
        promise = f"{series.TARGET}{{objective={name}, promise={quoted(objective.promise)}}}"
        yield {
            "alert": "VoiceObjectiveNotCounted",
            "expr": f"absent({promise})\nunless on () absent({series.RECEIVED}_total)",
            "labels": labels,
            "annotations": {
                "summary": f"{template(objective.name)}: the sidecar does not count it as these rules state it.",
                "description": f"{template(objective.sentence)}. Give the sidecar the file of the rules by --slo.",
            },
        }
