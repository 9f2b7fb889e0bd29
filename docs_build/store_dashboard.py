"""The Grafana dashboard over the store: exact figures of one run, asked of the sidecar's questions over HTTP.

The questions are those of `telemetry.store.questions`. Grafana asks them through the Infinity data source, whose base
address is the sidecar's and which holds the sidecar's token.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from telemetry.model.metrics import METRICS

SOURCE_TYPE: Final = "yesoreyeram-infinity-datasource"
_SOURCE: Final = {"type": SOURCE_TYPE, "uid": "${store}"}
_OF_RUN: Final = {"f": {"run_id": "${run}"}}
_STAGES: Final = (
    "voice_to_voice",
    "endpointing",
    "asr_final_latency",
    "llm_first_token_latency",
    "tts_first_chunk_latency",
    "leading_silence",
)
_WIDTH: Final = 24


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: where its value stands in an item of the answer, and its heading."""

    selector: str
    text: str
    kind: str = "string"
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class _Panel:
    """A panel with its one question. `root` is where the items stand in the answer; empty for the answer itself."""

    title: str
    text: str
    question: str
    columns: tuple[Column, ...]
    root: str = ""
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    kind: str = "table"
    width: int = 12
    height: int = 8


def store_dashboard() -> dict[str, Any]:
    """The dashboard in Grafana's classic JSON model."""
    return {
        "uid": "voiceprobe-store",
        "title": "voiceprobe: one run, exactly",
        "description": "Exact figures of one run from the store, asked of the sidecar.",
        "tags": ["voiceprobe"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": list(_placed()),
    }


def _latency(name: str) -> _Panel:
    figures = tuple(Column(f"metrics.{name}.{figure}", figure, "number", "ns") for figure in ("p50", "p95", "p99"))
    turns = Column(f"metrics.{name}.n", "turns", "number")
    definition = METRICS[name].definition
    return _Panel(METRICS[name].label, definition, "summary", (*figures, turns), "", _OF_RUN, "stat", 8, 5)


def _panels() -> Sequence[_Panel]:
    return (*(_latency(name) for name in _STAGES), *_count_panels(), *_table_panels())


def _count_panels() -> Sequence[_Panel]:
    return (
        _Panel(
            "Turns",
            "Invalid turns are the generator's fault and in no other figure.",
            "summary",
            (
                Column("turns.total", "turns", "number"),
                Column("turns.ok", "answered", "number"),
                Column("turns.invalid", "invalid", "number"),
                Column("loss.missing", "lost on the way", "number"),
            ),
            parameters=_OF_RUN,
            kind="stat",
            height=5,
        ),
        _Panel(
            "Cache",
            "Of the turns whose endpoint said whether a cache answered.",
            "summary",
            (Column("cache.reported", "reported", "number"), Column("cache.hits", "hits", "number")),
            parameters=_OF_RUN,
            kind="stat",
            height=5,
        ),
    )


def _table_panels() -> Sequence[_Panel]:
    return (
        _Panel(
            "Cohorts",
            "Voice to voice of each cohort.",
            "summary",
            (
                Column("cohort", "cohort"),
                Column("turns.total", "turns", "number"),
                *(Column(f"metrics.voice_to_voice.{name}", name, "number", "ns") for name in ("p50", "p95", "p99")),
            ),
            "cohorts",
            _OF_RUN,
        ),
        _Panel(
            "Why turns failed",
            "The commonest first.",
            "summary",
            (Column("kind", "kind"), Column("turns", "turns", "number"), Column("example", "for example")),
            "failures",
            _OF_RUN,
        ),
        _Panel(
            "Slowest turns",
            "By voice to voice.",
            "slowest",
            (
                Column("trace_id", "trace"),
                Column("turn_index", "turn", "number"),
                Column("cohort", "cohort"),
                Column("utterance_id", "utterance"),
                Column("noise_profile", "noise"),
                Column("route", "route"),
                Column("outcome", "outcome"),
            ),
            parameters={**_OF_RUN, "limit": 20},
        ),
        _Panel(
            "Runs",
            "Every run in the store, the newest first.",
            "runs",
            (
                Column("run_id", "run"),
                Column("target", "target"),
                Column("protocol", "protocol"),
                Column("turns", "turns", "number"),
                Column("ended", "ended", "boolean"),
            ),
        ),
    )


def _query(question: str, parameters: dict[str, Any], root: str, columns: Sequence[Column]) -> dict[str, Any]:
    return {
        "refId": "A",
        "type": "json",
        "source": "url",
        "parser": "backend",
        "format": "table",
        "url": f"/v1/query/{question}",
        "url_options": {
            "method": "POST",
            "body_type": "raw",
            "body_content_type": "application/json",
            "data": json.dumps(parameters),
        },
        "root_selector": root,
        "columns": [{"selector": each.selector, "text": each.text, "type": each.kind} for each in columns],
    }


def _variables() -> list[dict[str, Any]]:
    runs = (Column("run_id", "__text"), Column("run_id", "__value"))
    return [
        {"name": "store", "label": "Sidecar", "type": "datasource", "query": SOURCE_TYPE},
        {
            "name": "run",
            "label": "Run",
            "type": "query",
            "datasource": _SOURCE,
            "query": {"queryType": "infinity", "infinityQuery": _query("runs", {}, "", runs)},
            "refresh": 2,
        },
    ]


def _placed() -> Iterator[dict[str, Any]]:
    x = y = height = 0
    for number, panel in enumerate(_panels(), 1):
        if x + panel.width > _WIDTH:
            x, y, height = 0, y + height, 0
        units = [
            {"matcher": {"id": "byName", "options": each.text}, "properties": [{"id": "unit", "value": each.unit}]}
            for each in panel.columns
            if each.unit is not None
        ]
        yield {
            "id": number,
            "type": panel.kind,
            "title": panel.title,
            "description": panel.text,
            "datasource": _SOURCE,
            "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
            "fieldConfig": {"defaults": {}, "overrides": units},
            "options": {"reduceOptions": {"values": True, "fields": ""}} if panel.kind == "stat" else {},
            "targets": [{"datasource": _SOURCE, **_query(panel.question, panel.parameters, panel.root, panel.columns)}],
        }
        x, height = x + panel.width, max(height, panel.height)
