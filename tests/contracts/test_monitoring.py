"""Files for Prometheus, Grafana, Compose, GitHub and GitLab: over series that exist, and by their programs' schemas."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from telemetry.model.metrics import METRICS
from telemetry.objectives.rules import rules_text
from telemetry.objectives.slo import default_objectives
from telemetry.sidecar.counts.families import FAMILIES, SERVICE_FAMILIES
from tests.grafana import DATA, grafana_dashboard, store_dashboard
from tests.programs import needed

PANELS: list[dict[str, Any]] = grafana_dashboard()["panels"]
# Words of PromQL and labels, other than the names of series.
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


def test_store_panels_define_latencies_as_everything_else_does() -> None:
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
        apart = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        above = one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]
        assert apart or above, (one, two)
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
    (chosen,) = [variable for variable in grafana_dashboard()["templating"]["list"] if variable["type"] == "datasource"]
    assert chosen["query"] == source["type"]
    assert grafana_dashboard()["uid"] == "voiceprobe"


ROOT = Path(__file__).parents[2]
FILES = {
    "docker-compose.yml": "vendor.compose-spec",
    ".github/workflows/dependency-audit.yml": "vendor.github-workflows",
    ".github/workflows/nightly.yml": "vendor.github-workflows",
    "examples/ci/github-actions.yml": "vendor.github-workflows",
    "examples/ci/gitlab-ci.yml": "vendor.gitlab-ci",
}


def faults(file: Path, schema: str) -> str:
    """Return the faults by a schema that comes with the checker, so that no network is needed; empty without faults."""
    done = CliRunner().invoke(check_jsonschema.main, ["--builtin-schema", schema, str(file)])
    assert (done.exit_code != 0) == ("Schema validation errors" in done.output), done.output
    return done.output if done.exit_code else ""


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_as_the_program_that_reads_it_wants_it(file: str) -> None:
    assert faults(ROOT / file, FILES[file]) == ""


def test_service_that_compose_would_refuse_is_detected(tmp_path: Path) -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert "\n    restart:" in text
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(text.replace("\n    restart:", "\n    restarts:", 1), encoding="utf-8")
    assert "restarts" in faults(broken, "vendor.compose-spec")


def unknown_to_grafana(content: dict[str, Any]) -> list[str]:
    """The parts of a dashboard that are lost when Grafana's own types, with those of its panels, read and write it."""
    plugins.register_default_plugins()
    read = json.loads(json.dumps(Dashboard.from_json(content), cls=JSONEncoder))
    return list(_lost(content, read, "dashboard"))


def _lost(written: Any, read: Any, place: str) -> list[str]:
    if isinstance(written, dict) and isinstance(read, dict):
        return [line for key, value in written.items() for line in _lost(value, read.get(key), f"{place}.{key}")]
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        return [line for index, value in enumerate(written) for line in _lost(value, read[index], f"{place}[{index}]")]
    return [] if written == read else [place]


@pytest.mark.parametrize("made", [grafana_dashboard, store_dashboard])
def test_grafana_knows_every_part_of_its_dashboards(made: Callable[[], dict[str, Any]]) -> None:
    assert unknown_to_grafana(made()) == []


@pytest.mark.parametrize("made", [grafana_dashboard, store_dashboard])
def test_key_unknown_to_grafana_is_detected(made: Callable[[], dict[str, Any]]) -> None:
    broken = made()
    panel = next(candidate for candidate in broken["panels"] if "fieldConfig" in candidate)
    panel["heading"] = panel.pop("title")
    panel["fieldConfig"]["defaults"]["units"] = "ms"
    place = f"dashboard.panels[{broken['panels'].index(panel)}]"
    assert set(unknown_to_grafana(broken)) == {f"{place}.fieldConfig.defaults.units", f"{place}.heading"}
