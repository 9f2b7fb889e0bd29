"""The rules in a real Prometheus that scrapes a real sidecar: alerts fire while turns are bad, and end afterwards.

The windows are seconds instead of hours; everything is waited for by asking for its state.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from telemetry.model.turns import Turn
from telemetry.objectives.error_budgets import burn_rates_from
from telemetry.objectives.rules import RuleOptions, eligible_series, rules_text
from telemetry.objectives.slo import default_objectives
from tests.fixtures_sidecar import running_sidecar
from tests.fixtures_turns import client_turn
from tests.grafana import DATA
from tests.integration.prometheus.prometheus_process import PrometheusProcess, prometheus_of, running_prometheus
from tests.integration.prometheus.traffic import traffic

pytestmark = pytest.mark.nightly

BATCH = 10
OPTIONS = RuleOptions(burn_rates_from(["14.4:12s:4s:page", "6:20s:6s:ticket"], "here"), quiet_after="10s")


def _turns(voice_to_voice_ms: Callable[[], float]) -> Iterator[list[Turn]]:
    """Turns without end, with the latency that is asked for at that moment."""
    for first in itertools.count(0, BATCH):
        yield [client_turn(index, voice_to_voice_ms=voice_to_voice_ms()) for index in range(first, first + BATCH)]


def _firing(prometheus: PrometheusProcess, name: str) -> list[dict[str, str]]:
    return [labels for labels in prometheus.alerts() if labels["alertname"] == name]


def test_alert_fires_while_turns_are_bad_and_ends_after_them(tmp_path: Path) -> None:
    objectives = [objective for objective in default_objectives() if objective.name in ("voice-to-voice", "good-turns")]
    latency_ms = [500.0]
    with (
        running_sidecar(tmp_path / "store") as sidecar,
        running_prometheus(tmp_path, [sidecar.http], rules_text(objectives, OPTIONS)) as prometheus,
    ):
        # No turn is not healthy.
        prometheus.until(lambda: _firing(prometheus, "VoiceTurnsAbsent"), "an alert about no turns")
        with traffic(sidecar.http, _turns(lambda: latency_ms[0])):
            enough = f'{eligible_series("12s")}{{objective="voice-to-voice",source="client"}} > 200'
            prometheus.until(lambda: prometheus.query(enough), "turns")
            prometheus.until(lambda: not prometheus.alerts(), "no alert while all is well")
            latency_ms[0] = 900.0
            burns = "VoiceObjectiveBudgetBurns"
            paging = prometheus.until(
                lambda: [alert for alert in _firing(prometheus, burns) if alert["severity"] == "page"], "a page"
            )
            assert {(alert["objective"], alert["source"], alert["burn_rate"]) for alert in paging} == {
                ("voice-to-voice", "client", "14.4")
            }, "the turns end well, only too late"
            latency_ms[0] = 500.0
            prometheus.until(lambda: not prometheus.alerts(), "the end of the alert")
        prometheus.until(lambda: _firing(prometheus, "VoiceTurnsAbsent"), "an alert about no more turns")
        sidecar.kill()
        prometheus.until(lambda: _firing(prometheus, "VoiceTelemetryAbsent"), "an alert about the sidecar")


def test_compose_configuration_scrapes_sidecar_and_loads_rules(tmp_path: Path) -> None:
    token, shipped = "a-token-of-the-test", (DATA / "prometheus.yml").read_text(encoding="utf-8")
    rules = (DATA / "rules.yml").read_text(encoding="utf-8")
    token_file = "/run/secrets/voiceprobe_sidecar_token"
    with running_sidecar(tmp_path / "store", token=token) as sidecar:
        (tmp_path / "token").write_text(token)
        (tmp_path / "rules.yml").write_text(rules)
        # Where the token and the sidecar are is all that differs outside of the containers.
        here = {token_file: str(tmp_path / "token"), "sidecar:4318": sidecar.http.rpartition("//")[2]}
        assert all(place in shipped for place in here)
        for place, own in here.items():
            shipped = shipped.replace(place, own)
        (tmp_path / "prometheus.yml").write_text(shipped)
        with prometheus_of(tmp_path) as prometheus:
            prometheus.until(
                lambda: prometheus.query('up{job="voiceprobe"} == 1'), "a scrape that the sidecar answered"
            )
            groups = prometheus.data("/api/v1/rules", {})["groups"]
    loaded = {group["name"]: [rule["name"] for rule in group["rules"]] for group in groups}
    written = {
        group["name"]: [rule.get("alert") or rule["record"] for rule in group["rules"]]
        for group in yaml.safe_load(rules)["groups"]
    }
    assert loaded == written
    assert sum("Voice" in name for names in loaded.values() for name in names) > 3
    assert all(rule["health"] != "err" for group in groups for rule in group["rules"])
