"""Objectives as a document of Sloth (`prometheus/v1`), which makes rules of its own from it. Pure.

What Sloth reads is described in its repository, github.com/slok/sloth, under `pkg/prometheus/api/v1`.
"""

from collections.abc import Sequence
from typing import Any, Final

from telemetry.objectives import series
from telemetry.objectives.exported import SOURCE, chosen, identifier, percentage, template, yaml_text
from telemetry.objectives.objective import Objective

_HEADER: Final = """\
# Objectives for Sloth, made by `voiceprobe rules --format sloth`: do not edit them.
# The sidecar must count the same objectives (--slo). Budgets are those of 28 days, which is an option of Sloth's:
# sloth generate --default-slo-period=28d --input FILE
"""


def sloth_text(objectives: Sequence[Objective]) -> str:
    """A document in YAML, over the turns that callers heard. Raises ValueError without objectives."""
    if not objectives:
        raise ValueError("no objectives")
    document = {
        "version": "prometheus/v1",
        "service": "voiceprobe",
        "labels": {"source": SOURCE},
        "slos": [_slo(each) for each in objectives],
    }
    return _HEADER + yaml_text(document)


def _slo(objective: Objective) -> dict[str, Any]:
    selector = chosen(objective)
    return {
        "name": identifier(objective.name),
        "objective": percentage(objective),
        "description": objective.sentence,
        "sli": {
            "events": {
                "error_query": f"sum(increase({series.BAD_TURNS}_total{template(selector)}[{{{{.window}}}}]))",
                "total_query": f"sum(increase({series.ELIGIBLE}_total{template(selector)}[{{{{.window}}}}]))",
            }
        },
        "alerting": {
            "name": "VoiceObjectiveBudgetBurns",
            "labels": {"objective": template(objective.name)},
            "annotations": {"summary": template(f"{objective.name}: {objective.sentence}")},
            "page_alert": {"labels": {"severity": "page"}},
            "ticket_alert": {"labels": {"severity": "ticket"}},
        },
    }
