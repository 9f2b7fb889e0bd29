"""Objectives as documents of Sloth (`prometheus/v1`) and of Pyrra (`pyrra.dev/v1alpha1`), which make rules of their own
from them; and the names and texts that all exports to Prometheus share. Pure.

The formats are described in github.com/slok/sloth, `pkg/prometheus/api/v1`, and github.com/pyrra-dev/pyrra,
`kubernetes/api/v1alpha1`.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import yaml

from telemetry.objectives import series
from telemetry.objectives.error_budgets import PERIOD
from telemetry.objectives.objective import Objective

# Callers heard them. What services report of themselves counts the same turns once more.
SOURCE: Final = "client"
_LINE_CHARS: Final = 116
# Names of Kubernetes, and of Sloth, have no other characters.
_OTHERS: Final = re.compile(r"[^a-z0-9]+")
_NAME_CHARS_MAX: Final = 63


class PlainDumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and never uses aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Refuse every alias."""
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


PlainDumper.add_representer(str, _text)


def yaml_text(document: object) -> str:
    """A document as YAML, its keys in their order."""
    return yaml.dump(document, Dumper=PlainDumper, sort_keys=False, width=_LINE_CHARS, allow_unicode=True)


def quoted(text: str) -> str:
    """A text as PromQL writes it between quotes: with the escapes of JSON, which are among those of Go."""
    return json.dumps(text, ensure_ascii=False)


def template(text: str) -> str:
    """Return a text escaped for a Go template."""
    return text.replace("{{", '{{ "{{" }}')


def chosen(objective: Objective) -> str:
    """The labels of an objective's series over the turns that callers heard."""
    return f'{{objective={quoted(objective.name)},source="{SOURCE}"}}'


def percentage(objective: Objective) -> float:
    """The target in percent."""
    return float(Fraction(str(objective.target)) * 100)


def identifier(name: str) -> str:
    """A name of small letters, digits and `-`; names that differ stay different."""
    plain = _OTHERS.sub("-", name.lower()).strip("-")
    if plain and plain == name and len(plain) <= _NAME_CHARS_MAX:
        return plain
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: _NAME_CHARS_MAX - 11].strip('-') or 'o'}-{digest}"


_SLOTH_HEADER: Final = """\
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
        "slos": [_sloth_slo(objective) for objective in objectives],
    }
    return _SLOTH_HEADER + yaml_text(document)


def _sloth_slo(objective: Objective) -> dict[str, Any]:
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


_PYRRA_HEADER: Final = """\
# Objectives for Pyrra, made by `voiceprobe rules --format pyrra`: do not edit them.
# The sidecar must count the same objectives (--slo).
"""


def pyrra_text(objectives: Sequence[Objective]) -> str:
    """A document for each objective, in one YAML text, over the turns that callers heard. Raises ValueError without
    objectives."""
    if not objectives:
        raise ValueError("no objectives")
    return _PYRRA_HEADER + "---\n".join(yaml_text(_pyrra_document(objective)) for objective in objectives)


def _pyrra_document(objective: Objective) -> dict[str, Any]:
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
