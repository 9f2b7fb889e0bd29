"""Objectives as documents of Pyrra (`pyrra.dev/v1alpha1`), which makes rules and pages of its own from them. Pure.

What Pyrra reads is described in its repository, github.com/pyrra-dev/pyrra, under `kubernetes/api/v1alpha1`.
"""

from collections.abc import Sequence
from typing import Any, Final

from telemetry.objectives import series
from telemetry.objectives.error_budgets import PERIOD
from telemetry.objectives.exported import chosen, identifier, percentage, yaml_text
from telemetry.objectives.objective import Objective

_HEADER: Final = """\
# Objectives for Pyrra, made by `voiceprobe rules --format pyrra`: do not edit them.
# The sidecar must count the same objectives (--slo).
"""


def pyrra_text(objectives: Sequence[Objective]) -> str:
    """A document for each objective, in one YAML text, over the turns that callers heard. Raises ValueError without
    objectives."""
    if not objectives:
        raise ValueError("no objectives")
    return _HEADER + "---\n".join(yaml_text(_document(each)) for each in objectives)


def _document(objective: Objective) -> dict[str, Any]:
    selector = chosen(objective)
    return {
        "apiVersion": "pyrra.dev/v1alpha1",
        "kind": "ServiceLevelObjective",
        "metadata": {
            "name": identifier(objective.name),
            "namespace": "monitoring",
            "labels": {"prometheus": "k8s", "role": "alert-rules"},
        },
        "spec": {
            "description": objective.sentence,
            "target": f"{percentage(objective):.10g}",
            "window": objective.window or PERIOD,
            "indicator": {
                "ratio": {
                    "errors": {"metric": f"{series.BAD_TURNS}_total{selector}"},
                    "total": {"metric": f"{series.ELIGIBLE}_total{selector}"},
                }
            },
            "alerting": {"name": "VoiceObjectiveBudgetBurns", "absentName": "VoiceObjectiveAbsent"},
        },
    }
