"""Objectives from files: what is read, and every fault at once with its place."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.errors import ConfigError
from telemetry.objectives.exports import pyrra_text
from telemetry.objectives.openslo import duration_ns, parse_objectives
from telemetry.objectives.slo import default_objectives, load_objectives

GOOD_SPEC = "spec.indicator.spec.ratioMetric.good.metricSource.spec"


def document(name: str = "fast", **good: object) -> dict[str, Any]:
    source = good or {"metric": "voice_to_voice", "threshold": "800ms"}
    return {
        "apiVersion": "openslo/v1",
        "kind": "SLO",
        "metadata": {"name": name},
        "spec": {
            "service": "assistant",
            "budgetingMethod": "Occurrences",
            "timeWindow": [{"duration": "28d", "isRolling": True}],
            "indicator": {
                "metadata": {"name": name},
                "spec": {
                    "ratioMetric": {
                        "counter": True,
                        "good": {"metricSource": {"type": "voiceprobe", "spec": source}},
                        "total": {"metricSource": {"type": "voiceprobe", "spec": {"turns": "eligible"}}},
                    }
                },
            },
            "objectives": [{"target": 0.95}],
        },
    }


def faults(*documents: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_objectives(yaml.safe_dump_all(documents), "slo.yaml")
    assert caught.value.where == "slo.yaml"
    return caught.value.faults


def only(entry: dict[str, Any]):
    (objective,) = parse_objectives(yaml.safe_dump(entry), "slo.yaml")
    return objective


def test_a_metric_objective() -> None:
    objective = only(document(metric="voice_to_voice", threshold="0.8s", cohort="B", length="long", noise="pink"))
    assert (objective.name, objective.kind, objective.target) == ("fast", "metric", 0.95)
    assert (objective.metric, objective.threshold) == ("voice_to_voice", 800_000_000)
    assert (objective.cohort, objective.length_class, objective.noise_profile) == ("B", "long", "pink")
    assert objective.window == "28d"
    assert objective.sentence == "95 % of turns (B, long, pink): voice to voice at most 800 ms"
    assert objective.promise == "95 % of turns (B, long, pink): voice_to_voice at most 800 ms"


def test_other_objectives() -> None:
    assert only(document(metric="wer", threshold=0.1)).threshold == 0.1
    assert only(document(outcome="ok")).outcomes == ("ok",)
    assert only(document(outcome=["ok", "interrupted"])).outcomes == ("ok", "interrupted")
    assert only(document(fallback="none")).kind == "fallback"
    assert only(document(cache="hit", route="cache")).kind == "cache"


def test_percent_is_the_same_target() -> None:
    entry = document()
    entry["spec"]["objectives"] = [{"targetPercent": 99.9}]
    assert only(entry).target == 0.999


def test_several_documents_and_an_empty_one() -> None:
    text = yaml.safe_dump_all([document("a"), document("b")]) + "---\n"
    assert [objective.name for objective in parse_objectives(text, "x")] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("800ms", 800_000_000),
        ("1.5s", 1_500_000_000),
        ("2 m", 120_000_000_000),
        ("7us", 7_000),
        ("7µs", 7_000),
        ("0ms", 0),
        ("1h", 3_600_000_000_000),
        ("28d", 2_419_200_000_000_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ns(text) == expected


@pytest.mark.parametrize("text", ["", "800", "ms", "-1ms", "1e3ms", "800 msec", "8 00ms", "٣ms", "1y", "1s 1"])
def test_no_durations(text: str) -> None:
    assert duration_ns(text) is None


def _set(*path: object, to: object) -> Callable[[dict[str, Any]], None]:
    def change(entry: dict[str, Any]) -> None:
        at: Any = entry
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to

    return change


def _drop(*path: object) -> Callable[[dict[str, Any]], None]:
    def change(entry: dict[str, Any]) -> None:
        at: Any = entry
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]

    return change


_RATIO = ("spec", "indicator", "spec", "ratioMetric")
_GOOD = (*_RATIO, "good", "metricSource", "spec")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_set("apiVersion", to="openslo/v2"), "apiVersion: is 'openslo/v2'; write openslo/v1"),
        (_set("kind", to="Service"), "kind: is 'Service'; write SLO"),
        (_drop("kind"), "kind: is missing; write SLO"),
        (_set("metdata", to=1), "metdata: is not a known key; did you mean metadata?"),
        (_drop("metadata"), "metadata: is missing; it holds name"),
        (
            _set("metadata", to="fast"),
            "metadata: is 'fast'; a mapping with the keys name, displayName, labels, annotations is expected",
        ),
        (_set("metadata", "name", to="two words"), "metadata.name: is 'two words'; a name has"),
        (_set("metadata", "name", to=7), "metadata.name: is 7; a name has"),
        (_set("spec", "budgetingMethod", to="Timeslices"), "spec.budgetingMethod: is 'Timeslices'; write Occurrences"),
        (_set("spec", "timeWindow", to=[]), "spec.timeWindow: is []; a list of one window is expected"),
        (_set("spec", "timeWindow", 0, "duration", to="0d"), "spec.timeWindow[0].duration: is '0d'"),
        (_set("spec", "service", to=3), "spec.service: is 3; text is expected"),
        (_set("spec", "objectives", to=[]), "spec.objectives: is []; a list of one objective is expected"),
        (
            _set("spec", "objectives", 0, "target", to=1),
            "spec.objectives[0].target: is 1; a number above 0 and below 1",
        ),
        (_set("spec", "objectives", 0, "target", to=0), "spec.objectives[0].target: is 0;"),
        (_set("spec", "objectives", 0, "target", to=95), "spec.objectives[0].target: is 95;"),
        (_set("spec", "objectives", 0, "target", to=True), "spec.objectives[0].target: is true;"),
        (_set("spec", "objectives", 0, "target", to=float("nan")), "spec.objectives[0].target: is nan;"),
        (_set("spec", "objectives", 0, "targetPercent", to=95), "spec.objectives[0]: write either target"),
        (_drop("spec", "indicator"), "spec.indicator: is missing"),
        (_set("spec", "indicator", to={}), "spec.indicator.spec: is missing; it holds"),
        (_set(*_RATIO[:-1], to={}), "ratioMetric: is missing; it holds"),
        (_set(*_GOOD, to={}), "exactly one of metric, outcome, fallback, cache says"),
        (_set("spec", to=None), "spec: is null; a mapping with the keys description, "),
        (_drop(*_RATIO, "good"), "ratioMetric.good: is missing; it holds metricSource"),
        (_set(*_RATIO, "good", "metricSource", "type", to="prometheus"), "metricSource.type: is 'prometheus'; write"),
        (_set(*_RATIO, "total", "metricSource", "spec", "turns", to="all"), "spec.turns: is 'all'; write eligible"),
        (
            _set(*_GOOD, "metric", to="voice_to_vioce"),
            "'voice_to_vioce' is not a known metric; did you mean voice_to_voice?",
        ),
        (_set(*_GOOD, "metric", to="zzz"), "'zzz' is not a known metric; known are voice_to_voice, "),
        (_set(*_GOOD, "metric", to="itl"), "itl is many values per turn"),
        (_set(*_GOOD, "threshold", to=800), "threshold: is 800; voice_to_voice needs a duration such as 800ms"),
        (_set(*_GOOD, "threshold", to="fast"), "threshold: is 'fast'; voice_to_voice needs a duration"),
        (_drop(*_GOOD, "threshold"), "threshold: is missing; voice_to_voice needs a duration"),
        (_set(*_GOOD, to={"metric": "wer", "threshold": "800ms"}), "threshold: is '800ms'; wer needs a number"),
        (_set(*_GOOD, to={"metric": "wer", "threshold": float("inf")}), "threshold: is inf; wer needs a number"),
        (_set(*_GOOD, to={"metric": "wer", "threshold": -1}), "threshold: is -1; wer needs a number"),
        (_set(*_GOOD, "outcome", to="ok"), "exactly one of metric, outcome, fallback, cache says"),
        (_set(*_GOOD, to={"cohort": "A"}), "exactly one of metric, outcome, fallback, cache says"),
        (
            _set(*_GOOD, to={"outcome": "okay"}),
            "outcome: 'okay' is not an outcome of an eligible turn; did you mean ok?",
        ),
        (_set(*_GOOD, to={"outcome": "invalid"}), "outcome: 'invalid' is not an outcome of an eligible turn"),
        (_set(*_GOOD, to={"outcome": "cut"}), "outcome: 'cut' is not an outcome of an eligible turn"),
        (_set(*_GOOD, to={"outcome": []}), "outcome: is []; write for instance ok"),
        (_set(*_GOOD, to={"outcome": ["ok", "cut"]}), "outcome[1]: 'cut' is not an outcome of an eligible turn"),
        (_set(*_GOOD, to={"fallback": ""}), "fallback: is ''; write none"),
        (_set(*_GOOD, "route", to=None), "route: null is not a known route; known are "),
        (_set("spec", "timeWindow", 0, to=7), "spec.timeWindow[0]: is 7; a mapping with the keys duration, "),
        (
            _set(*_GOOD, to={"metric": "wer", "threshold": 10**400}),
            "threshold: is a number of more than 60 digits; wer",
        ),
        (_set("spec", "service", to=["\x1b[2J" * 100_000]), "spec.service: is ['\\x1b[2J"),
        (_set(*_GOOD, to={"outcome": "ok", "threshold": "1s"}), "threshold: only a metric has a threshold"),
        (_set(*_GOOD, to={"fallback": "rule"}), "fallback: is 'rule'; write none"),
        (_set(*_GOOD, to={"cache": "miss"}), "cache: is 'miss'; write hit"),
        (_set(*_GOOD, "length", to="shrt"), "length: 'shrt' is not a known length; did you mean short?"),
        (_set(*_GOOD, "cohort", to=1), "cohort: is 1; text is expected"),
        (_set(*_GOOD, "nois", to="pink"), "nois: is not a known key; did you mean noise?"),
        # Keys of OpenSLO that would change the meaning, and are not ignored.
        (_set("spec", "indicatorRef", to="sli"), "spec.indicatorRef: is not a known key"),
        (_set("spec", "objectives", 0, "op", to="lte"), "spec.objectives[0].op: is not a known key"),
        (_set("spec", "objectives", 0, "timeSliceTarget", to=0.9), "timeSliceTarget: is not a known key"),
        (_set("spec", "objectives", 0, "value", to=1), "spec.objectives[0].value: is not a known key"),
        (_set("spec", "objectives", to=[{"target": 0.9}, {"target": 0.8}]), "a list of one objective is expected"),
        (_set(*_RATIO, "bad", to={}), "ratioMetric.bad: is not a known key"),
    ],
)
def test_each_fault_is_named_with_its_place(change: Callable[[dict[str, Any]], None], expected: str) -> None:
    entry = document()
    change(entry)
    lines = faults(entry)
    assert len(lines) == 1, lines
    assert re.match(r"document 1, line \d+, ", lines[0])
    assert expected in lines[0]
    assert lines[0].isprintable()
    assert len(lines[0]) < 500


def test_every_fault_is_reported_at_once() -> None:
    broken = document("fast", metric="voice_to_vioce", threshold="soon", length="tiny")
    broken["apiVersion"] = "v1"
    broken["spec"]["objectives"] = [{"target": 2}]
    lines = faults(document("fast"), broken, ["no mapping"])
    text = yaml.safe_dump_all([document("fast"), broken, ["no mapping"]]).splitlines()
    for fault, (number, holds, says) in zip(
        lines,
        (
            (2, "apiVersion: v1", "apiVersion: is 'v1'; write openslo/v1"),
            (2, "  name: fast", "metadata.name: fast is also the name of document 1; give each objective a name"),
            (2, "              length: tiny", f"{GOOD_SPEC}.length: 'tiny' is not a known length"),
            (2, "              metric: voice_to_vioce", f"{GOOD_SPEC}.metric: 'voice_to_vioce' is not a known metric"),
            (2, "  - target: 2", "spec.objectives[0].target: is 2; a number above 0 and below 1 is expected"),
            (
                3,
                "- no mapping",
                "is ['no mapping']; a mapping with the keys apiVersion, kind, metadata, spec is expected",
            ),
        ),
        strict=True,
    ):
        line = len(text) - text[::-1].index(holds)  # the last one: the first document holds some of them too
        begin = f"document {number}, line {line}{': ' if number == 3 else ', '}"
        assert fault.startswith(f"{begin}{says}"), (begin, says, fault)


def test_lines_are_those_of_the_file() -> None:
    text = """# A comment.
---
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: a,
  labells: {}}
spec:
  # Another.
  objectives: [
    {target: 0.5,
     target_percent: 1}]
  "\\x1b[2J": 1
  indicator: &same
    metadata: {}
    <<: {spec: {ratioMetric: 3}}
"""
    with pytest.raises(ConfigError) as caught:
        parse_objectives(text, "slo.yaml")
    assert [fault.partition(": ")[0] for fault in caught.value.faults] == [
        "document 2, line 7, metadata.labells",
        "document 2, line 12, spec.objectives[0].target_percent",
        "document 2, line 13, spec.\\x1b[2J",
        "document 2, line 16, spec.indicator.spec.ratioMetric",
    ]


def test_recursive_document_is_refused_in_a_short_sentence() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_objectives("&a\napiVersion: *a\nkind: SLO\nmetadata: *a\nspec: {service: *a}\n", "slo.yaml")
    assert len(caught.value.faults) > 5
    assert all(len(fault) < 400 for fault in caught.value.faults)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1\nb: 2\n", "line 2, column "),
        ("a: 1\n\tb: 2\n", "line 2, column 1"),
        ("apiVersion: openslo/v1\nkind: SLO\nkind: SLO\n", "line 3, column 1: the key 'kind' is there twice"),
        ("a: \x01\n", "is not valid YAML"),
        ("a: 2026-13-45\n", "is not valid YAML"),
        ("? [1]\n: 2\n", "line 1, column "),
        ("[" * 5000, "is not valid YAML"),
        ("!!python/object/apply:os.getcwd []", "line 1, column 1"),
        ("", "holds no objective"),
        ("---\n---\n", "holds no objective"),
    ],
)
def test_text_that_is_no_yaml(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_objectives(text, "slo.yaml")
    (fault,) = caught.value.faults
    assert expected in fault
    assert "\n" not in fault


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PATHS = st.sampled_from(
    [
        (),
        ("metadata",),
        ("metadata", "name"),
        ("spec",),
        ("spec", "objectives"),
        ("spec", "objectives", 0),
        ("spec", "timeWindow"),
        ("spec", "timeWindow", 0),
        ("spec", "indicator"),
        ("spec", "indicator", "spec"),
        _RATIO,
        (*_RATIO, "good"),
        (*_RATIO, "total", "metricSource"),
        _GOOD,
        (*_GOOD, "metric"),
        (*_GOOD, "threshold"),
    ]
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(PATHS, TREES)
def test_any_value_anywhere_is_read_or_refused(path: tuple[object, ...], value: object) -> None:
    entry: Any = copy.deepcopy(document())
    if path:
        _set(*path, to=value)(entry)
    else:
        entry = value
    objectives, refused = [], []
    try:
        # Beside a good one: a document must never vanish without a fault.
        objectives = parse_objectives(yaml.safe_dump_all([document("other"), entry]), "slo.yaml")
    except ConfigError as error:
        refused = error.faults
    assert refused or len(objectives) == (1 if entry is None else 2)
    assert all(0 < objective.target < 1 for objective in objectives)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(yaml.safe_dump(document()), encoding="utf-8")
    assert [objective.name for objective in load_objectives(path)] == ["fast"]
    assert load_objectives(None) == default_objectives()


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_objectives(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_objectives(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is no UTF-8 text"):
        load_objectives(binary)


@pytest.mark.parametrize("duration", ["28d", "4w", "672h", "40320m"])
@pytest.mark.parametrize("rolling", [{}, {"isRolling": True}])
def test_a_window_of_28_days_is_the_one_that_budgets_have(duration: str, rolling: dict[str, bool]) -> None:
    entry = document()
    entry["spec"]["timeWindow"] = [{"duration": duration, **rolling}]
    (objective,) = parse_objectives(yaml.safe_dump(entry), "slo.yaml")
    assert objective.window == "28d"
    assert yaml.safe_load(pyrra_text([objective]))["spec"]["window"] == "28d"


CALENDAR = {"startTime": "2026-01-01 00:00:00", "timeZone": "Europe/Vienna"}


@pytest.mark.parametrize(
    ("window", "place"),
    [
        *(
            ({"duration": duration, "isRolling": True}, ".duration: is ")
            for duration in ("90d", "30d", "7d", "1h", "5w", "1M", "1Q", "1Y", "28D", "28", 28)
        ),
        ({"duration": "1M", "isRolling": False, "calendar": CALENDAR}, ": is a window of the calendar"),
        ({"duration": "28d", "calendar": CALENDAR}, ": is a window of the calendar"),
        ({"duration": "28d", "isRolling": False}, ": is a window of the calendar"),
        ({"isRolling": True}, ".duration: is missing"),
    ],
)
def test_another_window_is_refused_in_one_sentence(window: dict[str, Any], place: str) -> None:
    entry = document()
    entry["spec"]["timeWindow"] = [window]
    (fault,) = faults(entry)
    assert f"spec.timeWindow[0]{place}" in fault
    budgets = "error budgets are those of the last 28 days"
    assert fault.endswith(f"{budgets}: write duration: 28d and isRolling: true, or leave timeWindow out")


BESIDE = [
    {"apiVersion": "openslo/v1", "kind": kind, "metadata": {"name": kind.lower()}, "spec": {"description": "x"}}
    for kind in ("Service", "DataSource", "SLI", "AlertPolicy", "AlertCondition", "AlertNotificationTarget")
]


def test_other_kinds_in_file_are_skipped_with_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with_policy = document("guarded")
    with_policy["spec"]["alertPolicies"] = [{"alertPolicyRef": "alertpolicy"}]
    text = yaml.safe_dump_all([BESIDE[0], document("plain"), *BESIDE[1:], with_policy])
    with caplog.at_level("WARNING"):
        assert [parse_objective.name for parse_objective in parse_objectives(text, "mixed.yaml")] == [
            "plain",
            "guarded",
        ]
        parse_objectives(text, "mixed.yaml")  # as a page does at each refresh
    (logged,) = [record.getMessage() for record in caplog.records]
    assert logged == (
        "mixed.yaml: passed over, as no objective is in it: Service service (document 1), DataSource datasource "
        "(document 3), SLI sli (document 4), AlertPolicy alertpolicy (document 5), AlertCondition alertcondition "
        "(document 6), AlertNotificationTarget alertnotificationtarget (document 7), alertPolicies of guarded"
    )


def test_file_without_objective_is_refused_despite_other_kinds() -> None:
    lines = faults(*BESIDE[:2])
    assert ["kind: is 'Service'; write SLO" in lines[0], "kind: is 'DataSource'; write SLO" in lines[1]] == [True, True]


@pytest.mark.parametrize(
    "other",
    [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}},  # of Kubernetes
        {"apiVersion": "openslo/v1", "kind": "Slo", "metadata": {"name": "x"}},
    ],
)
def test_unknown_kind_is_fault_so_typo_loses_no_objective(other: dict[str, Any]) -> None:
    assert any("kind: is " in fault for fault in faults(document(), other))
