"""The alerts of rollouts, and the queries that Sloth and Pyrra make of our objectives, by promtool."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from telemetry.objectives.exports import pyrra_text, sloth_text
from telemetry.objectives.rules import rules_text
from telemetry.objectives.slo import default_objectives
from tests.programs import needed


def _passes(folder: Path, rules: str, test: dict[str, Any]) -> None:
    (folder / "rules.yml").write_text(rules)
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "30s", "tests": [test]}
    (folder / "tests.yml").write_text(yaml.safe_dump(tests))
    for arguments in (["check", "rules", "rules.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run(
            [needed("promtool"), *arguments], capture_output=True, text=True, timeout=300, check=False, cwd=folder
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_rollback_is_an_alert_and_so_is_a_verdict_that_is_old(tmp_path: Path) -> None:
    groups = yaml.safe_load(rules_text(default_objectives()))["groups"]
    rules = yaml.safe_dump({"groups": [group for group in groups if group["name"] == "voiceprobe-rollouts"]})
    of = 'instance="i",job="j",rollout="r"'
    series = {
        f'voice_rollout_verdict{{{of},verdict="promote"}}': "1x40",
        f'voice_rollout_verdict{{{of},verdict="roll_back"}}': "0x19 1x20",
        # A verdict every 30 s for 5 min, and none afterwards: 210 s later it is too old.
        f"voice_rollout_last_verdict_timestamp_seconds{{{of}}}": "0+30x10 300x29",
        f"voice_rollout_evaluation_interval_seconds{{{of}}}": "60x40",
    }

    def alert(at: str, name: str, severity: str | None, **labels: str) -> dict[str, Any]:
        alert_labels = {"instance": "i", "job": "j", "rollout": "r", "severity": severity, **labels}
        expected = [] if severity is None else [{"exp_labels": alert_labels}]
        return {"eval_time": at, "alertname": name, "exp_alerts": expected}

    test: dict[str, Any] = {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            alert("9m", "VoiceRolloutRolledBack", None),
            alert("10m", "VoiceRolloutRolledBack", "page", verdict="roll_back"),
            alert("8m30s", "VoiceRolloutNotEvaluated", None),
            alert("9m30s", "VoiceRolloutNotEvaluated", "ticket"),
        ],
    }
    for rule in groups[2]["rules"]:
        for case in test["alert_rule_test"]:
            if case["alertname"] == rule["alert"]:
                for expected in case["exp_alerts"]:
                    expected["exp_annotations"] = {
                        name: text.replace("{{ $labels.rollout }}", "r") for name, text in rule["annotations"].items()
                    }
    _passes(tmp_path, rules, test)


def test_sloths_and_pyrras_queries_are_ratios_of_our_series(tmp_path: Path) -> None:
    """Both combine them as errors / total over a window (Sloth's rules of events, Pyrra's ratio)."""
    (objective,) = [objective for objective in default_objectives() if objective.name == "voice-to-voice"]
    (slo,) = yaml.safe_load(sloth_text([objective]))["slos"]
    ratio = yaml.safe_load(pyrra_text([objective]))["spec"]["indicator"]["ratio"]
    errors, total = (slo["sli"]["events"][name].replace("{{.window}}", "5m") for name in ("error_query", "total_query"))
    metrics = [f"sum(increase({ratio[name]['metric']}[5m]))" for name in ("errors", "total")]
    recorded = [
        {"record": "slo:sli_error:ratio_rate5m", "expr": f"({errors})\n/\n({total})"},
        {"record": "pyrra:burnrate5m", "expr": " / ".join(metrics)},
    ]
    rules = yaml.safe_dump({"groups": [{"name": "g", "rules": recorded}]})
    places = [f'objective="voice-to-voice",source="{source}"' for source in ("client", "service")]
    test = {
        "interval": "30s",
        "input_series": [
            {"series": f"voice_objective_eligible_turns_total{{{places[0]}}}", "values": "0+10x40"},
            {"series": f"voice_objective_bad_turns_total{{{places[0]}}}", "values": "0+2x40"},
            # The same turns as a service reports them count once.
            {"series": f"voice_objective_eligible_turns_total{{{places[1]}}}", "values": "0+10x40"},
            {"series": f"voice_objective_bad_turns_total{{{places[1]}}}", "values": "0+9x40"},
        ],
        "promql_expr_test": [
            {"expr": rule["record"], "eval_time": "15m", "exp_samples": [{"labels": rule["record"], "value": 0.2}]}
            for rule in recorded
        ],
    }
    _passes(tmp_path, rules, test)
