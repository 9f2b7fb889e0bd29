"""The rules by promtool: checked, and run over made-up time series. A minute of those is an interval."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from telemetry.objectives.error_budgets import burn_rates_from
from telemetry.objectives.objective import Objective
from telemetry.objectives.rules import RuleOptions, rules_text
from telemetry.objectives.slo import default_objectives, load_objectives
from tests.fixtures_sidecar import ROOT
from tests.programs import needed

FAST = Objective("fast", "metric", 0.95, "voice_to_voice", 800_000_000)
PROMISE = {"objective": "fast", "stage": "turn", "promise": FAST.promise}
LABELS = {"objective": "fast", "stage": "turn", "source": "client", "service_name": "", "cohort": "a"}
DATA_ALERTS = (
    *("VoiceTelemetryAbsent", "VoiceTurnsAbsent", "VoiceTurnsMissing", "VoiceTelemetryRefused"),
    *("VoiceObjectiveWithoutData", "VoiceObjectiveNotCounted"),
)


def _checked(text: str, folder: Path) -> None:
    (folder / "rules.yml").write_text(text)
    done = subprocess.run(
        [needed("promtool"), "check", "rules", "--lint=all", "--lint-fatal", str(folder / "rules.yml")],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "objectives",
    [
        default_objectives(),
        load_objectives(ROOT / "examples" / "objectives.yaml"),
        [Objective("o", "outcome", 0.2, outcomes=("ok",), cohort='a"}\n\\ {{ $x }} `é` # :')],
    ],
    ids=["default", "example", "odd"],
)
def test_promtool_accepts_the_rules(objectives: list[Objective], tmp_path: Path) -> None:
    _checked(rules_text(objectives), tmp_path)
    rates = burn_rates_from(["14.4:2m:30s:page", "1.5:90s:500ms:ticket"], "here")
    _checked(rules_text(objectives, RuleOptions(rates, quiet_after="30s")), tmp_path)


def _series(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={value!r}' for label, value in labels.items())}}}"


TARGET = _series("voice_objective_target_ratio", PROMISE)
HEALTHY = {
    "voice_telemetry_received_items_total": "0+100x10000",
    "voice_telemetry_missing_turns": "0x10000",
    TARGET: "0.95x10000",
}


def _values(text: str) -> list[float | str]:
    """The values of a series as promtool writes them: `0+10x3` are 0, 10, 20 and 30, `_x2` are two missing ones."""
    values: list[float | str] = []
    for token in text.split():
        parts = re.fullmatch(r"(_|[\d.]+)([+-][\d.]+)?x(\d+)", token)
        if parts is None:
            values.append(token if token in ("stale", "_") else float(token))
        elif parts[1] == "_":
            values += ["_"] * int(parts[3])
        else:
            values += [float(parts[1]) + place * float(parts[2] or 0) for place in range(int(parts[3]) + 1)]
    return values


def _bad(eligible: str, good: str) -> str:
    pairs = zip(_values(eligible), _values(good), strict=False)
    return " ".join(str(a) if isinstance(a, str) or isinstance(b, str) else f"{a - b:.10g}" for a, b in pairs)


def _turns(eligible: str, good: str, **labels: str) -> list[dict[str, str]]:
    chosen = {**LABELS, **labels}
    return [
        {"series": _series("voice_objective_bad_turns_total", chosen), "values": _bad(eligible, good)},
        {"series": _series("voice_objective_eligible_turns_total", chosen), "values": eligible},
        {"series": _series("voice_objective_good_turns_total", chosen), "values": good},
    ]


Expected = dict[tuple[str, str], list[dict[str, str]]]


def _run(
    tmp_path: Path,
    turns: list[dict[str, str]],
    expected: Expected,
    others: dict[str, str] | None = None,
    *,
    evaluated_every: str = "1m",
) -> None:
    """Let promtool evaluate the rules: `expected` are the labels of the alerts that fire, by time and alert.

    An alert without `for` depends on no earlier evaluation: those between the expected times say nothing of it.
    """
    rules = yaml.safe_load(rules_text([FAST]))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)  # promtool would compare them
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    healthy = [{"series": name, "values": values} for name, values in {**HEALTHY, **(others or {})}.items() if values]
    tests: list[dict[str, Any]] = [
        {"eval_time": at, "alertname": name, "exp_alerts": [{"exp_labels": labels} for labels in alerts]}
        for (at, name), alerts in expected.items()
    ]
    content = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": evaluated_every,
        "tests": [{"interval": "1m", "input_series": [*turns, *healthy], "alert_rule_test": tests}],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(content))
    done = subprocess.run(
        [needed("promtool"), "test", "rules", "tests.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _burning(expected: dict[str, set[str]]) -> Expected:
    """The windows whose alert fires, by time."""
    rates = {"1h": ("page", "14.4"), "6h": ("page", "6"), "3d": ("ticket", "1")}
    alerts: Expected = {}
    for at, windows in expected.items():
        alerts[at, "VoiceObjectiveBudgetBurns"] = [
            {
                **{label: LABELS[label] for label in ("objective", "stage", "source")},
                **dict(zip(("severity", "burn_rate"), rates[window], strict=True)),
                "window": window,
            }
            for window in sorted(windows)
        ]
    return alerts


def test_fault_pages_once_enough_budget_is_gone_and_ends_with_it(tmp_path: Path) -> None:
    # 10 turns a minute: good for 2 hours, all bad for 50 minutes, good again.
    _run(
        tmp_path,
        _turns("0+10x1000", "0+10x120 1200x50 1210+10x800"),
        _burning(
            {
                "119m": set(),
                "140m": {"3d"},  # 20 of 140 minutes are 14 %
                "162m": {"3d"},  # 42 of 60 minutes are 70 %; 42 of 162 are 26 %
                "165m": {"1h", "3d"},  # 45 of 60 minutes are 75 %
                "170m": {"1h", "3d"},  # 50 of 170 minutes are 29 %
                "177m": {"3d"},  # the last 5 minutes are good
            }
        ),
    )


def test_a_slower_fault_pages_by_the_longer_windows(tmp_path: Path) -> None:
    # 4 of 10 turns are bad: a burn rate of 8, for which 14.4 is too high and 6 is not.
    _run(
        tmp_path,
        _turns("0+10x1000", "0+6x1000"),
        _burning({"30m": {"6h", "3d"}, "500m": {"6h", "3d"}}),
        evaluated_every="10m",
    )


def test_permitted_rate_is_no_alert_and_slightly_more_is_ticket(tmp_path: Path) -> None:
    # Each minute of four days would take promtool longer than all the other tests.
    for good, burning in ("0+951x6000", set[str]()), ("0+949x6000", {"3d"}):
        _run(tmp_path, _turns("0+1000x6000", good), _burning({"90h": burning}), evaluated_every="10h")


def test_too_few_turns_are_no_alert(tmp_path: Path) -> None:
    # One turn every 4 minutes, and all bad: 15 an hour, of the 20 that are needed; 6 hours have enough.
    quarter = "_ _ _ ".join(str(count) + " " for count in range(200))
    _run(
        tmp_path,
        _turns(quarter, "0x800"),
        _burning({"60m": set(), "100m": {"6h", "3d"}, "400m": {"6h", "3d"}}),
        evaluated_every="20m",
    )


def test_a_restarted_sidecar_is_no_alert(tmp_path: Path) -> None:
    _run(
        tmp_path,
        _turns("0+10x100 0+10x100", "0+10x100 0+10x100"),
        _burning({"120m": set(), "150m": set()}),
        evaluated_every="30m",
    )


def test_turns_of_cohorts_count_together_and_of_services_apart(tmp_path: Path) -> None:
    # The bad cohort alone would page. Together half are bad, a burn rate of 10. A service sees no fault.
    turns = [
        *_turns("0+10x500", "0x500", cohort="canary"),
        *_turns("0+10x500", "0+10x500"),
        *_turns("0+10x500", "0+10x500", source="service"),
    ]
    _run(tmp_path, turns, _burning({"400m": {"6h", "3d"}}), evaluated_every="20m")


GOOD_TURNS = _turns("0+10x400", "0+10x400")
ANOTHER = _turns("0+10x400", "0+10x400", objective="another")
LOST = {f"voice_telemetry_{name}_total": "0x400" for name in ("rejected_items", "refused_requests", "bad_requests")}


@pytest.mark.parametrize(
    ("turns", "others", "firing"),
    [
        (GOOD_TURNS, {}, set()),
        (_turns("0+10x60 600x400", "0+10x60 600x400"), {}, {"VoiceTurnsAbsent"}),
        (_turns("0x400", "0x400"), {}, {"VoiceTurnsAbsent"}),
        ([*_turns("0x400", "0x400"), *ANOTHER], {}, {"VoiceObjectiveWithoutData"}),
        (GOOD_TURNS, {"voice_telemetry_missing_turns": "0x150 3x400"}, {"VoiceTurnsMissing"}),
        *((GOOD_TURNS, {name: "0x150 1x400"}, {"VoiceTelemetryRefused"}) for name in LOST),
        (GOOD_TURNS, {"voice_telemetry_received_items_total": ""}, {"VoiceTelemetryAbsent"}),
        (GOOD_TURNS, {"voice_telemetry_received_items_total": "0+1x150 stale"}, {"VoiceTelemetryAbsent"}),
        (GOOD_TURNS, {TARGET: "", TARGET.replace("800", "900"): "0.95x400"}, {"VoiceObjectiveNotCounted"}),
    ],
)
def test_unknown_state_is_not_healthy(
    tmp_path: Path, turns: list[dict[str, str]], others: dict[str, str], firing: set[str]
) -> None:
    labels: dict[str, dict[str, str]] = {
        "VoiceTelemetryAbsent": {"severity": "page"},
        "VoiceObjectiveWithoutData": {"severity": "ticket", "objective": "fast"},
        "VoiceObjectiveNotCounted": {"severity": "ticket", "objective": "fast", "promise": FAST.promise},
    }
    expected: Expected = {
        ("170m", name): [labels.get(name, {"severity": "ticket"})] if name in firing else [] for name in DATA_ALERTS
    }
    _run(tmp_path, turns, expected, {**LOST, **others})


RECEIVED = "voice_telemetry_received_items_total"


def _sidecar(instance: str, received: str, **target: str) -> dict[str, str]:
    """The series of a sidecar that is scraped as this instance of a job."""
    labels = {"job": "voiceprobe", "instance": instance, **target}
    return {_series(RECEIVED, labels): received}


def _bot(name: str, turns: str, instance: str = "sidecar:4318") -> dict[str, str]:
    """Turns that a service reports to the sidecar of an instance, by two outcomes."""
    labels = {"job": "voiceprobe", "instance": instance, "service_name": name}
    series = {
        outcome: _series("voice_service_turns_total", {**labels, "outcome": outcome}) for outcome in ("ok", "error")
    }
    return {series["ok"]: turns, series["error"]: turns.replace("+10x", "+1x")}


def _absent(
    tmp_path: Path, others: dict[str, str], expected: dict[str, list[dict[str, str]]], *, evaluated_every: str = "1m"
) -> None:
    """At which minutes telemetry is absent, and of what: the labels other than the severity."""
    alerts: Expected = {
        (at, "VoiceTelemetryAbsent"): [{"severity": "page", **labels} for labels in alerts]
        for at, alerts in expected.items()
    }
    _run(tmp_path, GOOD_TURNS, alerts, {RECEIVED: "", **others}, evaluated_every=evaluated_every)


NONE: list[dict[str, str]] = []


def test_a_redeploy_under_another_instance_is_no_absence(tmp_path: Path) -> None:
    """At minute 100 the old one ends; the new one answers at once, counts from 0, and has other bots at first."""
    others = {
        **_sidecar("10.0.0.1:4318", "0+100x99 stale"),
        **_sidecar("10.0.0.2:4318", "_x99 0+100x400"),
        **_bot("desk", "0+10x99 stale", "10.0.0.1:4318"),
        **_bot("desk", "_x101 3+10x400", "10.0.0.2:4318"),
        # Its only turns since then came before the new sidecar was scraped: no increase shows them.
        **_bot("rare", "0+10x99 stale", "10.0.0.1:4318"),
        **_bot("rare", "_x120 3x400", "10.0.0.2:4318"),
    }
    _absent(tmp_path, others, dict.fromkeys(("90m", "101m", "107m", "130m", "165m", "175m"), NONE))


def test_a_bot_that_stops_while_another_goes_on_is_one(tmp_path: Path) -> None:
    """One sidecar counts both, and goes on to answer."""
    others = {**_sidecar("s:1", "0+100x2000"), **_bot("desk", "0+10x100 1000x2000"), **_bot("sales", "0+10x2000")}
    desk = [{"service_name": "desk"}]
    # 60 minutes without a turn, and 5 in which that stays so; a day later it is a service that there was.
    _absent(tmp_path, others, {"159m": NONE, "167m": desk})
    _absent(tmp_path, others, {"1000m": desk, "1600m": NONE}, evaluated_every="10m")


def test_a_night_without_any_call_is_no_absence_of_telemetry(tmp_path: Path) -> None:
    """Only turns are absent, which is a ticket."""
    quiet = "0+10x100 1000x2000"
    others = {**_sidecar("s:1", quiet), **_bot("desk", quiet), **_bot("sales", quiet)}
    _absent(tmp_path, others, {"159m": NONE, "170m": NONE})
    _absent(tmp_path, others, {"1000m": NONE}, evaluated_every="10m")


def test_bot_that_stops_behind_running_sidecar_is_absent(tmp_path: Path) -> None:
    """Its sidecar goes on to answer, and receives nothing."""
    others = {
        **_sidecar("a:1", "0+100x100 10000x400", service="desk"),
        **_sidecar("b:1", "0+100x500", service="sales"),
    }
    _absent(tmp_path, others, {"150m": NONE, "170m": [{"job": "voiceprobe", "service": "desk"}]})


def test_a_bot_that_stops_is_one_also_across_a_redeploy(tmp_path: Path) -> None:
    others = {
        **_sidecar("a:1", "0+100x99 stale"),
        **_sidecar("b:1", "_x99 0+100x400"),
        **_bot("desk", "0+10x99 stale", "a:1"),
        **_bot("sales", "0+10x99 stale", "a:1"),
        **_bot("sales", "_x100 0+10x400", "b:1"),
    }
    _absent(tmp_path, others, {"150m": NONE, "170m": [{"service_name": "desk"}]})


def test_stopped_sidecar_is_absent_among_those_of_its_service(tmp_path: Path) -> None:
    """Sidecars differ by the label `service` that Prometheus gives its targets in Kubernetes, or by their jobs."""
    others = {
        **_sidecar("a:1", "0+100x99 stale", service="desk"),
        **_sidecar("b:1", "0+100x400", service="sales"),
        **_sidecar("c:1", "0+100x99 stale", job="spare"),
    }
    gone = [{"job": "spare"}, {"job": "voiceprobe", "service": "desk"}]
    _absent(tmp_path, others, {"99m": NONE, "104m": NONE, "110m": gone, "158m": gone})


def test_without_any_sidecar_everything_is_absent(tmp_path: Path) -> None:
    _absent(tmp_path, {**_sidecar("a:1", "0+100x99 stale")}, {"99m": NONE, "110m": [{}, {"job": "voiceprobe"}]})


def test_turns_are_absent_after_restart_of_sidecar_without_any(tmp_path: Path) -> None:
    """The sidecar has no series of turns then, so that no sum of them is 0."""
    turns = _turns("0+10x99 stale", "0+10x99 stale", instance="a:1")
    others = {RECEIVED: "", **_sidecar("a:1", "0+100x99 stale"), **_sidecar("b:1", "_x99 0+100x400"), **LOST}
    ticket = [{"severity": "ticket"}]
    expected: Expected = {(at, "VoiceTurnsAbsent"): alerts for at, alerts in (("150m", []), ("170m", ticket))}
    _run(tmp_path, turns, expected, others)
