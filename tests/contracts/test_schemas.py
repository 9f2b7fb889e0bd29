"""Files that other programs read, against the schemas of those programs: Compose, GitHub, GitLab and Grafana."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.grafana import grafana_dashboard, store_dashboard

ROOT = Path(__file__).parents[2]
FILES = {
    "docker-compose.yml": "vendor.compose-spec",
    ".github/workflows/dependency-audit.yml": "vendor.github-workflows",
    ".github/workflows/nightly.yml": "vendor.github-workflows",
    "examples/ci/github-actions.yml": "vendor.github-workflows",
    "examples/ci/gitlab-ci.yml": "vendor.gitlab-ci",
}


def faults(file: Path, schema: str) -> str:
    """What a schema that comes with the checker, so that no network is asked, finds wrong; empty for nothing."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode != 0) == ("Schema validation errors" in done.stdout), done.stdout + done.stderr
    return done.stdout if done.returncode else ""


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_as_the_program_that_reads_it_wants_it(file: str) -> None:
    assert faults(ROOT / file, FILES[file]) == ""


def test_a_service_that_compose_would_refuse_is_found(tmp_path: Path) -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert "\n    restart:" in text
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(text.replace("\n    restart:", "\n    restarts:", 1), encoding="utf-8")
    assert "restarts" in faults(broken, "vendor.compose-spec")


def unknown_to_grafana(found: dict[str, Any]) -> list[str]:
    """The parts of a dashboard that are lost when Grafana's own types, with those of its panels, read and write it."""
    plugins.register_default_plugins()
    read = json.loads(json.dumps(Dashboard.from_json(found), cls=JSONEncoder))
    return list(_lost(found, read, "dashboard"))


def _lost(found: Any, read: Any, place: str) -> list[str]:
    if isinstance(found, dict) and isinstance(read, dict):
        return [each for key, value in found.items() for each in _lost(value, read.get(key), f"{place}.{key}")]
    if isinstance(found, list) and isinstance(read, list) and len(found) == len(read):
        return [each for index, value in enumerate(found) for each in _lost(value, read[index], f"{place}[{index}]")]
    return [] if found == read else [place]


@pytest.mark.parametrize("made", [grafana_dashboard, store_dashboard])
def test_grafana_knows_every_part_of_its_dashboards(made: Callable[[], dict[str, Any]]) -> None:
    assert unknown_to_grafana(made()) == []


@pytest.mark.parametrize("made", [grafana_dashboard, store_dashboard])
def test_a_part_that_grafana_does_not_know_is_found(made: Callable[[], dict[str, Any]]) -> None:
    broken = made()
    panel = next(each for each in broken["panels"] if "fieldConfig" in each)
    panel["heading"] = panel.pop("title")
    panel["fieldConfig"]["defaults"]["units"] = "ms"
    place = f"dashboard.panels[{broken['panels'].index(panel)}]"
    assert set(unknown_to_grafana(broken)) == {f"{place}.fieldConfig.defaults.units", f"{place}.heading"}
