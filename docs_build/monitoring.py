"""Writes the files for Prometheus and Grafana that are made from code: `python -m docs_build.monitoring`.

The rules are those of the default objectives. The dashboard is in Grafana's classic JSON model.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from docs_build.store_dashboard import store_dashboard
from telemetry.model.metrics import METRICS
from telemetry.objectives import series
from telemetry.objectives.rules import rules_text
from telemetry.objectives.slo import default_objectives
from telemetry.sidecar.counts.histograms import series_name
from telemetry.sidecar.counts.services import service_series_name

DATA: Final = Path(__file__).parents[1] / "telemetry" / "data"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH: Final = 24
_HEIGHT: Final = 8
_OF_OBJECTIVES: Final = '{objective=~"$objective",source=~"$source",service_name=~"$service_name",cohort=~"$cohort"}'
_OF_SERVICES: Final = '{service_name=~"$service_name"}'
_OF_TURNS: Final = '{cohort=~"$cohort"}'
_ELIGIBLE: Final = f"{series.ELIGIBLE}_total{_OF_OBJECTIVES}"
_GOOD: Final = f"{series.GOOD}_total{_OF_OBJECTIVES}"
_BUDGET: Final = f"(1 - max by (objective) ({series.TARGET}))"
_HEADLINE: Final = series_name(METRICS["voice_to_voice"])


@dataclass(frozen=True, slots=True)
class _Panel:
    """A panel with its queries, each with the text of its legend."""

    title: str
    text: str
    queries: Mapping[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8


def monitoring_files() -> dict[str, str]:
    """The text of each file, by its path in `telemetry/data`."""
    dashboards = {"grafana/voiceprobe.json": grafana_dashboard(), "grafana/voiceprobe-store.json": store_dashboard()}
    return {
        "rules.yml": rules_text(default_objectives()),
        **{place: json.dumps(made, indent=2, ensure_ascii=False) + "\n" for place, made in dashboards.items()},
    }


def grafana_dashboard() -> dict[str, Any]:
    """The dashboard over what a sidecar exposes."""
    return {
        "uid": "voiceprobe",
        "title": "voiceprobe",
        "description": "Voice turns by objective, stage, cohort and cache, from the sidecar's /metrics.",
        "tags": ["voiceprobe"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "annotations": {"list": []},
        "panels": list(_placed()),
    }


def _quantile(share: float, name: str, by: str = "le") -> str:
    return f"histogram_quantile({share}, sum by ({by}) (rate({name}_bucket{_OF_TURNS}[$__rate_interval])))"


def _good_ratio(window: str, by: str) -> str:
    return f"sum by ({by}) (increase({_GOOD}[{window}])) / sum by ({by}) (increase({_ELIGIBLE}[{window}]))"


def _burn_rate(window: str, by: str) -> str:
    """The burn rate in a window; `by` begins with the objective."""
    bad = f"(1 - sum by ({by}) (rate({_GOOD}[{window}])) / sum by ({by}) (rate({_ELIGIBLE}[{window}])))"
    return f"{bad} / on (objective) group_left () {_BUDGET}"


def _turns(family: str, by: str) -> str:
    return f"sum by ({by}) (rate({family}_total{_OF_TURNS}[$__rate_interval]))"


def _objective_panels() -> Sequence[_Panel]:
    return (
        _Panel(
            "Good turns",
            "Of the eligible turns in the time shown.",
            {"{{objective}} {{source}}": _good_ratio("$__range", "objective, source")},
            "percentunit",
            "stat",
            12,
        ),
        _Panel(
            "Error budget left",
            "1: no bad turn in the time shown; 0: as many as are permitted; below: the objective is missed.",
            {"{{objective}} {{source}}": f"1 - ({_burn_rate('$__range', 'objective, source')})"},
            "percentunit",
            "stat",
            12,
        ),
        _Panel(
            "Burn rate",
            "How many times faster than permitted the error budget is used up. Alerts: 14.4, 6 and 1.",
            {"{{objective}} {{source}}": _burn_rate("$window", "objective, source")},
        ),
        _Panel(
            "Good turns by cohort",
            "Without turns there is no line.",
            {"{{objective}} {{cohort}}": _good_ratio("$window", "objective, cohort")},
            "percentunit",
        ),
        _Panel(
            "Alerts that fire",
            "",
            {
                "{{alertname}} {{objective}} {{severity}}": "count by (alertname, objective, severity) "
                '(ALERTS{alertname=~"Voice.+",alertstate="firing"})'
            },
        ),
    )


def _latency_panels() -> Sequence[_Panel]:
    stages = ("endpointing", "asr_final_latency", "llm_first_token_latency", "tts_first_chunk_latency")
    return (
        _Panel(
            "Voice to voice",
            "From the end of the caller's speech to the first audible sample of the reply. Estimated from buckets: "
            "the store has exact percentiles.",
            {f"p{round(share * 100)}": _quantile(share, _HEADLINE) for share in (0.5, 0.95, 0.99)},
            "s",
        ),
        _Panel(
            "Stages, p95",
            "All but the last count from the end of the caller's speech.",
            {METRICS[name].label: _quantile(0.95, series_name(METRICS[name])) for name in stages},
            "s",
        ),
        _Panel(
            "Voice to voice by cohort, p95",
            "",
            {"{{cohort}}": _quantile(0.95, _HEADLINE, "le, cohort")},
            "s",
        ),
    )


def _count_panels() -> Sequence[_Panel]:
    hits = 'sum by (tier) (rate(voice_cache_lookups_total{cohort=~"$cohort",hit="true"}[$__rate_interval]))'
    fallbacks = _turns("voice_fallbacks", "kind")
    return (
        _Panel(
            "Turns by outcome",
            "A second.",
            {"{{outcome}}": _turns("voice_turns", "outcome")},
            "reqps",
        ),
        _Panel(
            "Answered from a cache",
            "Of the turns whose endpoint said whether a cache answered.",
            {"{{tier}}": f"{hits} / {_turns('voice_cache_lookups', 'tier')}"},
            "percentunit",
        ),
        _Panel(
            "Answered by a fallback",
            "Of all turns that are not invalid.",
            {
                "{{kind}}": f"{fallbacks} / on () group_left () "
                'sum(rate(voice_turns_total{cohort=~"$cohort",outcome!="invalid"}[$__rate_interval]))'
            },
            "percentunit",
        ),
        _Panel("Turns by route", "A second.", {"{{route}}": _turns("voice_turns", "route")}, "reqps"),
        _Panel("Turns by model", "A second.", {"{{model}}": _turns("voice_turns", "model")}, "reqps"),
        _Panel(
            "Invalid turns by reason",
            "A second: not said as recorded (late frames, drift), or spoiled by a fault of the generator; no part of "
            "the figures. A turn may have several reasons.",
            {
                "{{reason}}": "sum by (reason) (rate(voice_turns_invalid_total[$__rate_interval]))",
                "turns not said as recorded": "sum(rate(voice_turns_not_as_recorded_total[$__rate_interval]))",
            },
            "reqps",
        ),
    )


def _service_panels() -> Sequence[_Panel]:
    stages = ("asr_final_latency", "llm_first_token_latency", "tts_first_chunk_latency", "voice_to_voice")
    return (
        _Panel(
            "Stages as services report them, p95",
            "Never mixed with what callers heard: between the two are the network, the playout, and where a service "
            "believes that speech ended.",
            {
                f"{METRICS[name].label} {{{{service_name}}}}": f"histogram_quantile(0.95, sum by (le, service_name) "
                f"(rate({service_series_name(METRICS[name])}_bucket{_OF_SERVICES}[$__rate_interval])))"
                for name in stages
            },
            "s",
        ),
        _Panel(
            "Reported turns by outcome",
            "A second.",
            {
                "{{service_name}} {{outcome}}": "sum by (service_name, outcome) "
                f"(rate(voice_service_turns_total{_OF_SERVICES}[$__rate_interval]))"
            },
            "reqps",
        ),
        _Panel(
            "Reported fallbacks and cache hits",
            "A second.",
            {
                "{{service_name}} fallback {{kind}}": "sum by (service_name, kind) "
                f"(rate(voice_service_fallbacks_total{_OF_SERVICES}[$__rate_interval]))",
                "{{service_name}} cache hit {{hit}}": "sum by (service_name, hit) "
                f"(rate(voice_service_cache_lookups_total{_OF_SERVICES}[$__rate_interval]))",
            },
            "reqps",
        ),
    )


def _telemetry_panels() -> Sequence[_Panel]:
    return (
        _Panel(
            "Received and stored",
            "A second.",
            {
                "received": f"sum(rate({series.RECEIVED}_total[$__rate_interval]))",
                "stored {{table}}": "sum by (table) (rate(voice_telemetry_stored_rows_total[$__rate_interval]))",
                "spans of unknown names": "sum(rate(voice_telemetry_unmapped_spans_total[$__rate_interval]))",
            },
            "cps",
        ),
        _Panel(
            "Refused",
            "A second: rejected items, requests that could not be read, requests that are to be sent again.",
            {
                name.removeprefix("voice_telemetry_"): f"sum(rate({name}_total[$__rate_interval]))"
                for name in (series.REJECTED, series.BAD, series.REFUSED)
            },
            "cps",
        ),
        _Panel("Missing turns", "Lost on their way to the sidecar.", {"{{instance}}": series.MISSING}),
    )


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    asked = {"objective": "objective", "source": "reported by", "service_name": "service", "cohort": "cohort"}
    for name, label in asked.items():
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _SOURCE,
            "query": f"label_values({series.ELIGIBLE}_total, {name})",
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }
    windows = ("1m", "5m", "30m", "1h", "6h", "3d")
    yield {
        "name": "window",
        "label": "burn rate over",
        "type": "custom",
        "query": ",".join(windows),
        "current": {"selected": True, "text": "5m", "value": "5m"},
        "options": [{"selected": each == "5m", "text": each, "value": each} for each in windows],
    }


def _placed() -> Iterator[dict[str, Any]]:
    """The panels with their ids and places, each group below a row with its name."""
    number = y = 0
    rows = {
        "Objectives": _objective_panels(),
        "What callers heard": (*_latency_panels(), *_count_panels()),
        "What services report": _service_panels(),
        "Telemetry": _telemetry_panels(),
    }
    for title, panels in rows.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
            "panels": [],
        }
        y, x = y + 1, 0
        for panel in panels:
            if x + panel.width > _WIDTH:
                y, x = y + _HEIGHT, 0
            number += 1
            yield _panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": _HEIGHT})
            x += panel.width
        y += _HEIGHT


def _panel(panel: _Panel, number: int, place: Mapping[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _SOURCE,
            "expr": expression,
            "legendFormat": legend,
            "exemplar": panel.kind == "timeseries" and "_bucket" in expression,
            "instant": panel.kind == "stat",
            "range": panel.kind != "stat",
        }
        for index, (legend, expression) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": {"unit": panel.unit, "noValue": "no data"}, "overrides": []},
        "options": {},
        "targets": targets,
    }


def main() -> None:
    """Write every file."""
    for place, text in monitoring_files().items():
        file = DATA / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
