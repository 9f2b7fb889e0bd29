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


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    odd = [Objective("o", "outcome", 0.2, outcomes=("ok",), cohort='a"}\n\\ {{ $x }} `é` # :')]
    rates = burn_rates_from(["14.4:2m:30s:page", "1.5:90s:500ms:ticket"], "here")
    for place, objectives in enumerate([default_objectives(), load_objectives(ROOT / "examples/objectives.yaml"), odd]):
        (tmp_path / f"{place}.yml").write_text(rules_text(objectives))
        (tmp_path / f"{place}-rates.yml").write_text(rules_text(objectives, RuleOptions(rates, quiet_after="30s")))
    done = _promtool(tmp_path, "check", "rules", "--lint=all", "--lint-fatal", *sorted(map(str, tmp_path.iterdir())))
    assert done.returncode == 0, done.stdout


def _promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool; what it writes to both streams is in `stdout`, in its order."""
    command, pipe = [needed("promtool"), *arguments], subprocess.PIPE
    return subprocess.run(
        command, cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True, timeout=300, check=False
    )


def _series(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={value!r}' for label, value in labels.items())}}}"


TARGET = _series("voice_objective_target_ratio", PROMISE)
RECEIVED = "voice_telemetry_received_items_total"
HEALTHY = {
    RECEIVED: "0+100x10000",
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


SCENARIOS: dict[str, dict[str, Any]] = {}


def scenario(
    name: str,
    turns: list[dict[str, str]],
    expected: Expected,
    others: dict[str, str] | None = None,
    *,
    evaluated_every: str = "1m",
) -> None:
    """Add a scenario: `expected` are the labels of the alerts that fire, by time and alert.

    An alert without `for` depends on no earlier evaluation: those between the expected times say nothing of it.
    """
    assert name not in SCENARIOS
    healthy = [{"series": name, "values": values} for name, values in {**HEALTHY, **(others or {})}.items() if values]
    tests: list[dict[str, Any]] = [
        {"eval_time": at, "alertname": name, "exp_alerts": [{"exp_labels": labels} for labels in alerts]}
        for (at, name), alerts in expected.items()
    ]
    SCENARIOS[name] = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": evaluated_every,
        "tests": [{"interval": "1m", "input_series": [*turns, *healthy], "alert_rule_test": tests}],
    }


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


# 10 turns a minute: good for 2 hours, all bad for 50 minutes, good again.
scenario(
    "a fault pages once enough budget is gone, and ends with it",
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
# 4 of 10 turns are bad: a burn rate of 8, for which 14.4 is too high and 6 is not.
scenario(
    "a slower fault pages by the longer windows",
    _turns("0+10x1000", "0+6x1000"),
    _burning({"30m": {"6h", "3d"}, "500m": {"6h", "3d"}}),
    evaluated_every="10m",
)
# Each minute of four days would take promtool longer than all the other scenarios.
for good, burning in ("0+951x6000", set[str]()), ("0+949x6000", {"3d"}):
    scenario(
        f"bad turns at {'more than ' if burning else ''}the permitted rate",
        _turns("0+1000x6000", good),
        _burning({"90h": burning}),
        evaluated_every="10h",
    )
# One turn every 4 minutes, and all bad: 15 an hour, of the 20 that are needed; 6 hours have enough.
scenario(
    "too few turns are no alert",
    _turns("_ _ _ ".join(str(count) + " " for count in range(200)), "0x800"),
    _burning({"60m": set(), "100m": {"6h", "3d"}, "400m": {"6h", "3d"}}),
    evaluated_every="20m",
)
scenario(
    "a restarted sidecar is no alert",
    _turns("0+10x100 0+10x100", "0+10x100 0+10x100"),
    _burning({"120m": set(), "150m": set()}),
    evaluated_every="30m",
)
# The bad cohort alone would page. Together half are bad, a burn rate of 10. A service sees no fault.
scenario(
    "turns of cohorts count together, and those of services apart",
    [
        *_turns("0+10x500", "0x500", cohort="canary"),
        *_turns("0+10x500", "0+10x500"),
        *_turns("0+10x500", "0+10x500", source="service"),
    ],
    _burning({"400m": {"6h", "3d"}}),
    evaluated_every="20m",
)

GOOD_TURNS = _turns("0+10x400", "0+10x400")
ANOTHER = _turns("0+10x400", "0+10x400", objective="another")
LOST = {f"voice_telemetry_{name}_total": "0x400" for name in ("rejected_items", "refused_requests", "bad_requests")}
# What is not known is not healthy.
UNKNOWN: dict[str, tuple[list[dict[str, str]], dict[str, str], set[str]]] = {
    "all is known": (GOOD_TURNS, {}, set()),
    "turns stop": (_turns("0+10x60 600x400", "0+10x60 600x400"), {}, {"VoiceTurnsAbsent"}),
    "no turn ever": (_turns("0x400", "0x400"), {}, {"VoiceTurnsAbsent"}),
    "one objective has no turns": ([*_turns("0x400", "0x400"), *ANOTHER], {}, {"VoiceObjectiveWithoutData"}),
    "turns are missing": (GOOD_TURNS, {"voice_telemetry_missing_turns": "0x150 3x400"}, {"VoiceTurnsMissing"}),
    **{f"one of {name}": (GOOD_TURNS, {name: "0x150 1x400"}, {"VoiceTelemetryRefused"}) for name in LOST},
    "nothing was ever received": (GOOD_TURNS, {RECEIVED: ""}, {"VoiceTelemetryAbsent"}),
    "nothing is received any more": (GOOD_TURNS, {RECEIVED: "0+1x150 stale"}, {"VoiceTelemetryAbsent"}),
    "another promise is counted": (
        GOOD_TURNS,
        {TARGET: "", TARGET.replace("800", "900"): "0.95x400"},
        {"VoiceObjectiveNotCounted"},
    ),
}
ALERT_LABELS: dict[str, dict[str, str]] = {
    "VoiceTelemetryAbsent": {"severity": "page"},
    "VoiceObjectiveWithoutData": {"severity": "ticket", "objective": "fast"},
    "VoiceObjectiveNotCounted": {"severity": "ticket", "objective": "fast", "promise": FAST.promise},
}
for what, (turns, others, firing) in UNKNOWN.items():
    fires: Expected = {
        ("170m", alert): [ALERT_LABELS.get(alert, {"severity": "ticket"})] if alert in firing else []
        for alert in DATA_ALERTS
    }
    scenario(what, turns, fires, {**LOST, **others})


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


def absence(
    name: str, others: dict[str, str], expected: dict[str, list[dict[str, str]]], *, evaluated_every: str = "1m"
) -> None:
    """Add a scenario of when telemetry is absent, and of what: the labels other than the severity."""
    alerts: Expected = {
        (at, "VoiceTelemetryAbsent"): [{"severity": "page", **labels} for labels in alerts]
        for at, alerts in expected.items()
    }
    scenario(name, GOOD_TURNS, alerts, {RECEIVED: "", **others}, evaluated_every=evaluated_every)


NONE: list[dict[str, str]] = []
# At minute 100 the old one ends; the new one answers at once, counts from 0, and has other bots at first.
absence(
    "a redeploy under another instance is no absence",
    {
        **_sidecar("10.0.0.1:4318", "0+100x99 stale"),
        **_sidecar("10.0.0.2:4318", "_x99 0+100x400"),
        **_bot("desk", "0+10x99 stale", "10.0.0.1:4318"),
        **_bot("desk", "_x101 3+10x400", "10.0.0.2:4318"),
        # Its only turns since then came before the new sidecar was scraped: no increase shows them.
        **_bot("rare", "0+10x99 stale", "10.0.0.1:4318"),
        **_bot("rare", "_x120 3x400", "10.0.0.2:4318"),
    },
    dict.fromkeys(("90m", "101m", "107m", "130m", "165m", "175m"), NONE),
)
# One sidecar counts both, and goes on to answer. 60 minutes without a turn, and 5 in which that stays so; a day later
# it is a service that there was.
STOPPED = {**_sidecar("s:1", "0+100x2000"), **_bot("desk", "0+10x100 1000x2000"), **_bot("sales", "0+10x2000")}
DESK = [{"service_name": "desk"}]
absence("a bot that stops while another goes on is absent", STOPPED, {"159m": NONE, "167m": DESK})
absence("and is forgotten after a day", STOPPED, {"1000m": DESK, "1600m": NONE}, evaluated_every="10m")
# Only turns are absent, which is a ticket.
QUIET = "0+10x100 1000x2000"
NIGHT = {**_sidecar("s:1", QUIET), **_bot("desk", QUIET), **_bot("sales", QUIET)}
absence("an hour without any call is no absence of telemetry", NIGHT, {"159m": NONE, "170m": NONE})
absence("nor is a night without any", NIGHT, {"1000m": NONE}, evaluated_every="10m")
# Its sidecar goes on to answer, and receives nothing.
absence(
    "a bot that stops behind a running sidecar is absent",
    {
        **_sidecar("a:1", "0+100x100 10000x400", service="desk"),
        **_sidecar("b:1", "0+100x500", service="sales"),
    },
    {"150m": NONE, "170m": [{"job": "voiceprobe", "service": "desk"}]},
)
absence(
    "a bot that stops is absent also across a redeploy",
    {
        **_sidecar("a:1", "0+100x99 stale"),
        **_sidecar("b:1", "_x99 0+100x400"),
        **_bot("desk", "0+10x99 stale", "a:1"),
        **_bot("sales", "0+10x99 stale", "a:1"),
        **_bot("sales", "_x100 0+10x400", "b:1"),
    },
    {"150m": NONE, "170m": DESK},
)
# Sidecars differ by the label `service` that Prometheus gives its targets in Kubernetes, or by their jobs.
GONE = [{"job": "spare"}, {"job": "voiceprobe", "service": "desk"}]
absence(
    "a stopped sidecar is absent among those of its service",
    {
        **_sidecar("a:1", "0+100x99 stale", service="desk"),
        **_sidecar("b:1", "0+100x400", service="sales"),
        **_sidecar("c:1", "0+100x99 stale", job="spare"),
    },
    {"99m": NONE, "104m": NONE, "110m": GONE, "158m": GONE},
)
absence(
    "without any sidecar everything is absent",
    {**_sidecar("a:1", "0+100x99 stale")},
    {"99m": NONE, "110m": [{}, {"job": "voiceprobe"}]},
)
# The sidecar has no series of turns then, so that no sum of them is 0.
scenario(
    "turns are absent after the restart of a sidecar without any",
    _turns("0+10x99 stale", "0+10x99 stale", instance="a:1"),
    {("150m", "VoiceTurnsAbsent"): [], ("170m", "VoiceTurnsAbsent"): [{"severity": "ticket"}]},
    {RECEIVED: "", **_sidecar("a:1", "0+100x99 stale"), **_sidecar("b:1", "_x99 0+100x400"), **LOST},
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Answers of promtool, by scenario."""
    folder = tmp_path_factory.mktemp("rules")
    rules = yaml.safe_load(rules_text([FAST]))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)  # promtool would compare them
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    for place, content in enumerate(SCENARIOS.values()):
        (folder / f"{place}.yml").write_text(yaml.safe_dump(content))
    done = _promtool(folder, "test", "rules", *(f"{place}.yml" for place in range(len(SCENARIOS))))
    parts = re.split(r"^Unit Testing: +\d+\.yml\n", done.stdout, flags=re.MULTILINE)[1:]
    return dict(zip(SCENARIOS, parts, strict=True))


@pytest.mark.parametrize("name", SCENARIOS)
def test_alerts_fire_in_their_scenarios_and_in_no_other(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name].strip() == "SUCCESS"
