"""The files for Prometheus and Grafana: whole, and over series that exist."""

import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
import yaml

from telemetry.model.metrics import METRICS
from telemetry.objectives.rules import rules_text
from telemetry.objectives.slo import default_objectives
from telemetry.sidecar.counts.families import FAMILIES, SERVICE_FAMILIES
from tests.grafana import DATA, grafana_dashboard, store_dashboard
from tests.programs import needed

PANELS: list[dict[str, Any]] = grafana_dashboard()["panels"]
# Words of PromQL and labels, beside the names of series.
SERIES = re.compile(r"\b(?:objective:)?voice_[a-z_]+(?::[a-z_0-9]+)?")
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def _queries() -> Iterator[str]:
    for panel in PANELS:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in grafana_dashboard()["templating"]["list"]:
        yield variable["query"]


def test_the_rules_are_those_of_the_default_objectives() -> None:
    made = rules_text(default_objectives())
    assert (DATA / "rules.yml").read_text(encoding="utf-8") == made, (
        "run voiceprobe rules --out telemetry/data/rules.yml"
    )


def test_the_panels_of_the_store_define_a_latency_as_everything_else_does() -> None:
    shown = {panel["title"]: panel["description"] for panel in store_dashboard()["panels"]}
    defined = {metric.label: metric.definition for metric in METRICS.values()}
    latencies = shown.keys() & defined.keys()
    assert len(latencies) == 6
    assert {title: shown[title] for title in latencies} == {title: defined[title] for title in latencies}


def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(
        [needed("promtool"), "check", "rules", str(DATA / "rules.yml")],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_series_is_one_that_the_sidecar_exposes() -> None:
    exposed = {family.name + suffix for family in (*FAMILIES, *SERVICE_FAMILIES) for suffix in SUFFIXES[family.kind]}
    asked = {name for query in _queries() for name in SERIES.findall(query)}
    assert len(asked) > 15
    assert asked - exposed == set()


def test_every_label_is_one_of_its_series() -> None:
    known = {label for family in (*FAMILIES, *SERVICE_FAMILIES) for label in family.labels}
    for query in _queries():
        selected = {
            label for selector in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)=", selector)
        }
        grouped = {label for labels in re.findall(r"(?:by|on) \(([^)]*)\)", query) for label in labels.split(", ")}
        assert selected | grouped <= known | {"", "le", "alertname", "alertstate", "severity"}, query


@pytest.mark.parametrize("panels", [PANELS, store_dashboard()["panels"]], ids=["series", "store"])
def test_panels_have_ids_of_their_own_and_do_not_overlap(panels: list[dict[str, Any]]) -> None:
    numbers = [panel["id"] for panel in panels]
    assert len(numbers) == len(set(numbers))
    for one, two in combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        above = one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]
        assert beside or above, (one, two)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_every_variable_of_a_query_is_declared() -> None:
    declared = {variable["name"] for variable in grafana_dashboard()["templating"]["list"]}
    used = {name for query in _queries() for name in re.findall(r"\$(\w+)", query)}
    assert used - {"__rate_interval", "__range"} <= declared
    assert declared <= used | {"datasource"}


def test_every_panel_can_be_drawn() -> None:
    for panel in PANELS:
        assert panel["type"] in ("row", "timeseries", "stat")
        references = [target["refId"] for target in panel.get("targets", ())]
        assert len(references) == len(set(references))
        assert bool(references) == (panel["type"] != "row")
        for target in panel.get("targets", ()):
            assert target["expr"].count("(") == target["expr"].count(")")


def test_grafana_finds_its_data_source_and_its_dashboards() -> None:
    source, store = yaml.safe_load((DATA / "grafana" / "datasources.yml").read_text())["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    assert store["type"] == store_dashboard()["templating"]["list"][0]["query"]
    assert store["jsonData"]["allowedHosts"] == [store["url"]]
    (provider,) = yaml.safe_load((DATA / "grafana" / "dashboards.yml").read_text())["providers"]
    assert provider["type"] == "file"
    (chosen,) = [each for each in grafana_dashboard()["templating"]["list"] if each["type"] == "datasource"]
    assert chosen["query"] == source["type"]
    assert grafana_dashboard()["uid"] == "voiceprobe"
