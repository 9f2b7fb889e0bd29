"""Every query of the Grafana dashboard, in a real Prometheus that scrapes a real sidecar with turns of every kind."""

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.model.services import service_run_id
from telemetry.model.turns import Turn
from telemetry.objectives.error_budgets import burn_rates_from
from telemetry.objectives.rules import RuleOptions, rules_text
from telemetry.objectives.slo import default_objectives
from tests.fixtures_sidecar import running_sidecar
from tests.fixtures_turns import synthetic_run
from tests.grafana import grafana_dashboard
from tests.integration.prometheus.prometheus_process import PrometheusProcess, running_prometheus
from tests.integration.prometheus.traffic import traffic

# What Grafana puts into a query.
VALUES = {"__rate_interval": "20s", "__range": "1m", "window": "20s"}
QUERIES = {
    f"{panel['title']}: {target['legendFormat']}": target["expr"]
    for panel in grafana_dashboard()["panels"]
    for target in panel.get("targets", ())
}


def _filled(query: str) -> str:
    return re.sub(r"\$(\w+)", lambda match: VALUES.get(match[1], ".*"), query)


def _turns() -> Iterator[list[Turn]]:
    """Turns without end, of both sides, with every outcome, cache hits, fallbacks and reasons to be invalid."""
    for number in itertools.count():
        run = synthetic_run(f"run-{number}", 60, seed=number).turns
        yield [
            msgspec.structs.replace(
                turn,
                run_id=service_run_id("bot", turn.started_unix_ns) if turn.source == "service" else turn.run_id,
                trace_id=f"{number + 1:016x}{index:016x}",
                span_id=f"{index + 1:016x}",
            )
            for index, turn in enumerate(run)
        ]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusProcess]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    # An objective that the sidecar does not count, so that an alert fires.
    objectives = [*default_objectives(), replace(default_objectives()[0], name="another")]
    rules = rules_text(objectives, RuleOptions(burn_rates_from(["1:10s:3s:page"], "here"), quiet_after="5s"))
    with (
        running_sidecar(folder / "store") as sidecar,
        running_prometheus(folder, [sidecar.http], rules) as started,
        traffic(sidecar.http, _turns()),
    ):
        yield started


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_of_the_dashboard_gives_series_with_values(prometheus: PrometheusProcess, name: str) -> None:
    query = _filled(QUERIES[name])

    def finite() -> list[dict[str, Any]]:
        return [sample for sample in prometheus.query(query) if math.isfinite(float(sample["value"][1]))]

    samples = prometheus.until(finite, query)
    shown = re.findall(r"\{\{(\w+)\}\}", name)
    assert any(set(shown) <= set(sample["metric"]) for sample in samples), "the legend's labels"


def test_every_variable_of_the_dashboard_has_values(prometheus: PrometheusProcess) -> None:
    for variable in grafana_dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
            assert match is not None
            chosen = f"count by ({match[2]}) ({match[1]})"
            assert prometheus.until(lambda asked=chosen: prometheus.query(asked), chosen)
