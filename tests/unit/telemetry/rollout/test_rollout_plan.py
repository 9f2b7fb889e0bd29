"""The plan's file with every fault at once, and where a rollout is, from verdicts written by hand."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.model.durations import Duration
from telemetry.model.errors import ConfigError
from telemetry.model.formatting import NS_PER_S
from telemetry.objectives.slo import default_objectives
from telemetry.rollout.plan import Check, Decision, Look, RolloutPlan, Stage, conflicts, slice_name
from telemetry.rollout.plan_document import parse_plan
from telemetry.rollout.progress import LoggedVerdict, explanation_of, forecast, logged_row, rollout_progress
from telemetry.rollout.verdict import CheckVerdict, RolloutVerdict
from tests.rollout_cohorts import MS, plan

ROOT = Path(__file__).parents[4]
SMALL = """
name = "streaming"
unit = "call"
[cohorts]
control = "stable"
candidate = "streaming"
[[stages]]
name = "canary"
share = 0.05
"""
GUARDRAILS = """
[[guardrails]]
check = "quantile"
metric = "endpointing"
statistic = "p50"
margin = "20ms"
[[guardrails]]
check = "good_turns"
within = "800ms"
margin = 0.02
[[guardrails]]
check = "cost_per_turn"
margin = 0.001
price_per_token = 0.00001
[[guardrails]]
check = "tail"
margin = 0.02
"""


CACHE_MISSES = Check("cache_misses", "cache_misses", 0.05, is_optional=True)
WATCHED = '[[guardrails]]\ncheck = "cache_misses"\nmargin = 0.02\n'
WITHOUT = SMALL.replace("unit", "cache_misses = false\nunit")


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_plan(text, "rollout.toml")
    assert caught.value.where == "rollout.toml"
    return caught.value.faults


def test_a_small_plan_has_the_documented_defaults() -> None:
    plan = parse_plan(SMALL, "rollout.toml")
    assert plan == RolloutPlan(
        name="streaming",
        control="stable",
        candidate="streaming",
        unit="call",
        stages=(Stage("canary", 0.05, 0.95, Duration.parse("5m"), 100),),
        primary=Check("voice_to_voice p95", "quantile", 100 * MS),
        guardrails=(Check("tail voice_to_voice", "tail", 0.01), CACHE_MISSES),
    )
    assert (plan.error_level, plan.power) == (0.05, 0.9)


def test_guardrails_are_read_in_the_unit_of_their_kind() -> None:
    guardrails = parse_plan(SMALL + GUARDRAILS, "rollout.toml").guardrails
    assert guardrails == (
        Check("endpointing p50", "quantile", 20 * MS, "endpointing", "p50"),
        Check("good_turns voice_to_voice", "good_turns", 0.02, within=800 * MS),
        Check("cost_per_turn", "cost_per_turn", 0.001, price_per_token=0.00001),
        Check("tail voice_to_voice", "tail", 0.02),
        CACHE_MISSES,
    )
    assert guardrails[0].fraction == 0.5


def test_rolling_back_shares_the_error_level_and_no_more() -> None:
    plan = parse_plan(SMALL + GUARDRAILS, "rollout.toml")
    levels = [plan.rollback_level(check) for check in plan.checks]
    assert levels == [0.025] + [0.025 / 5] * 5
    assert sum(levels) == pytest.approx(plan.error_level)


@pytest.mark.parametrize("stages", [1, 2, 1000])
def test_all_stages_share_the_error_level_of_rolling_back(stages: int) -> None:
    shares = [(number + 1) / (stages + 1) for number in range(stages)]
    with_control = tuple(Stage(f"s{number}", share, 1 - share, Duration(), 1) for number, share in enumerate(shares))
    last = Stage("all", 1.0, 0.0, Duration(), 1)  # nothing is compared there, so it takes no part
    plan = replace(parse_plan(SMALL + GUARDRAILS, "rollout.toml"), stages=(*with_control, last))
    everywhere = [plan.rollback_level(check) for stage in plan.stages if stage.has_control for check in plan.checks]
    assert len(everywhere) == stages * 6
    assert math.fsum(everywhere) == pytest.approx(0.05)
    assert plan.rollback_level(plan.primary) == pytest.approx(0.025 / stages)
    nowhere = replace(plan, stages=(last,))
    assert nowhere.rollback_level(plan.primary) == 0.025


def test_every_fault_is_reported_at_once_with_its_line() -> None:
    text = """
name = "streaming "
unit = "turn"
error_level = 0.7
begins = 2026-11-02T08:00:00
slices = ["mood"]
[cohorts]
control = "a"
candidate = "a"
[primary]
margin = 100
metric = "tokens_per_s"
[[stages]]
name = "one"
share = 0.2
control_share = 0.9
shortest = "a day"
[[guardrails]]
check = "no_replies"
[[guardrails]]
check = "errors"
margin = 2
within = "1s"
[[guardrails]]
check = "cost_per_turn"
margin = 0.1
[completeness]
telemetry_losses = 0.1
"""
    lines = faults(text)
    begin = [
        "line 2, name: is 'streaming '; a name has",
        "line 3, unit: is 'turn'; turns of one call are not independent, and a caller would meet both versions",
        "line 4, error_level: is 0.7; a number above 0 and at most 0.15",
        "line 5, begins: is 2026-11-02 08:00:00; a moment with its time zone",
        "line 6, slices[1]: 'mood' is not a dimension of a turn",
        "line 9, cohorts.candidate: is the control itself",
        "line 11, primary.margin: is 100; a duration above 0 with its unit",
        "line 12, primary.metric: 'tokens_per_s' is not a latency that a turn has",
        "line 16, stages[1].control_share: is more than the candidate leaves",
        "line 17, stages[1].shortest: 'a day' is not a duration",
        "line 19, guardrails[1].check: 'no_replies' is not a known check; did you mean no_reply?",
        "line 22, guardrails[2].margin: is 2; a share above 0",
        "line 23, guardrails[2].within: does not belong to the check errors",
        "line 24, guardrails[3].price_per_token: is missing",
        "line 28, completeness.telemetry_losses: is not a known key; did you mean telemetry_loss?",
    ]
    assert len(lines) == len(begin), lines
    for sentence, expected in zip(lines, begin, strict=True):
        assert sentence.startswith(expected)


def test_an_empty_plan_says_what_is_missing() -> None:
    assert faults("") == [
        "line 1, name: is missing; a name has up to 63 letters, digits, '.', '_' and '-', "
        "with a letter or digit at each end",
        "line 1, unit: is missing; say who is assigned to a cohort: call or user",
        "line 1, cohorts: is missing; it holds control, candidate",
        "line 1, stages: is missing; write each stage as a table of its own, under [[stages]]",
    ]
    assert faults("name = ")[0].startswith("is not valid TOML")


@pytest.mark.parametrize(
    ("stages", "fault"),
    [
        ([("a", 0.1), ("b", 0.1)], "stages[2].share: is 0.1; each stage has a larger share"),
        ([("a", 0.1), ("a", 0.2)], "stages[2].name: 'a' is given twice"),
        ([("a", 1.0)], "stages[1].share: is 1; with all callers at once there is no control"),
    ],
)
def test_stages_grow_and_begin_with_a_control(stages: list[tuple[str, float]], fault: str) -> None:
    text = SMALL.split("[[stages]]", maxsplit=1)[0]
    text += "".join(f'[[stages]]\nname = "{name}"\nshare = {share}\n' for name, share in stages)
    assert fault in faults(text)[0]


def test_nothing_is_watched_twice() -> None:
    (fault,) = faults(SMALL + '[[guardrails]]\ncheck = "errors"\nmargin = 0.1\n' * 2)
    assert fault == "line 13, guardrails[2]: watches the same as guardrails[1]; leave one of them out"


def test_fingerprint_changes_with_plan_but_not_with_comments() -> None:
    plan = parse_plan(SMALL, "a")
    assert parse_plan("# why\n" + SMALL.replace("0.05", "0.050"), "b").fingerprint == plan.fingerprint
    edited = [
        SMALL.replace("0.05", "0.06"),
        SMALL + '[primary]\nmargin = "101ms"\n',
        SMALL.replace("unit", "error_level = 0.06\nunit"),
        SMALL + "[completeness]\ninvalid_turns = 0.02\n",
    ]
    assert len({plan.fingerprint, *(parse_plan(text, "c").fingerprint for text in edited)}) == 5


def test_cache_misses_are_watched_unless_the_file_says_otherwise() -> None:
    assert CACHE_MISSES in parse_plan(SMALL, "p").guardrails
    assert parse_plan(SMALL.replace("unit", "cache_misses = true\nunit"), "p") == parse_plan(SMALL, "p")
    stated = parse_plan(SMALL + WATCHED, "p").guardrails
    assert [guardrail for guardrail in stated if guardrail.kind == "cache_misses"] == [
        Check("cache_misses", "cache_misses", 0.02)
    ]
    assert [guardrail.kind for guardrail in parse_plan(WITHOUT, "p").guardrails] == ["tail"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            WITHOUT + '[[guardrails]]\ncheck = "errors"\nmargin = 0.1\n' + WATCHED,
            "line 3, cache_misses: conflicts with guardrails[2], which watches them; leave one out",
        ),
        (
            SMALL.replace("unit", "cache_misses = 0.1\nunit"),
            "line 3, cache_misses: is 0.1; write false to leave this default out, or state its margin under "
            "[[guardrails]]",
        ),
        (SMALL + WATCHED + WATCHED, "line 13, guardrails[2]: watches the same as guardrails[1]; leave one of them out"),
        (
            SMALL.replace("unit", "cache_miss = false\nunit"),
            "line 3, cache_miss: is not a known key; did you mean cache_misses?",
        ),
    ],
)
def test_cache_misses_are_configured_only_once(text: str, fault: str) -> None:
    assert faults(text) == [fault]


def test_default_absent_in_earlier_version_keeps_fingerprint() -> None:
    """The fingerprints of these files by the version before cache misses were a default."""
    before = {
        SMALL: "d1b3dafb8f52699af35d1539d4a8e4334e3e05b0d107fe40134ba6f78636d2d4",
        SMALL + GUARDRAILS: "33d2934deefd51ce8af940ac72fd8eeb3a7dc2fb6b8ca8c27c245bc8f61c73c9",
        SMALL + WATCHED: "e62b36f625c8665b0a0663974cfd6638d5e579e04b614b9b5b4b1efcc3dcfdf7",
        SMALL + WATCHED.replace("0.02", "0.05"): "930746b3a33c3205dbc99a2c48bc8d9515a0fb8e2e9f97ae2db2f788d70f3825",
    }
    assert {text: parse_plan(text, "p").fingerprint for text in before} == before
    # To leave it out midway is an edit, as to state it is.
    assert parse_plan(WITHOUT, "p").fingerprint not in before.values()


def test_a_check_and_a_slice_have_the_names_that_people_read() -> None:
    plan = parse_plan(SMALL + '[primary]\nmetric = "llm_first_token_latency"\nmargin = "100ms"\n', "a")
    assert plan.primary.sentence == "p95 of LLM first token"
    assert slice_name("noise_profile", "clean") == "noise = clean"
    assert slice_name("route", "cloud") == "route = cloud"


def test_a_log_of_an_earlier_version_is_of_the_same_plan() -> None:
    # The fingerprint of such a plan is in logs: what people read may change, what it is made from may not.
    text = SMALL + '[[guardrails]]\ncheck = "objective"\nobjective = "voice-to-voice"\nmargin = 0.02\n'
    plan = parse_plan(text, "a").with_promises(
        {default_objective.name: default_objective.promise for default_objective in default_objectives()}
    )
    assert plan.guardrails[0].promise == "95 % of turns: voice_to_voice at most 800 ms"
    assert plan.fingerprint == "d51544942f73194dc19f7f639c9bbcc6e4df480c3a185e448e0adb28af630063"


def test_the_shortest_time_of_a_stage_is_part_of_the_plan() -> None:
    texts = [SMALL + line for line in ("", 'shortest = "5m"\n', 'shortest = "0s"\n', 'shortest = "1m"\n')]
    unstated, default, none, other = (parse_plan(text, "a").fingerprint for text in texts)
    assert unstated == default
    assert len({default, none, other}) == 3


def test_promise_of_objective_is_part_of_the_plan() -> None:
    text = SMALL + '[[guardrails]]\ncheck = "objective"\nobjective = "quick"\nmargin = 0.02\n'
    plan = parse_plan(text, "a")
    one, other = (plan.with_promises({"quick": f"95 % of turns: within {bound}"}) for bound in ("1 s", "2 s"))
    assert plan.objectives == ("quick",)
    assert one.fingerprint != other.fingerprint
    assert one.guardrails[0].sentence == "share of turns that miss the objective quick"
    with pytest.raises(ConfigError, match=r"there is no objective 'quick'; did you mean quicker\?"):
        plan.with_promises({"quicker": ""})
    assert faults(text.replace('objective = "quick"\n', "")) == [
        "line 10, guardrails[1].objective: is missing; name an objective of the file of --slo"
    ]


def test_two_plans_over_one_cohort_are_named() -> None:
    plan = parse_plan(SMALL, "a")
    other = parse_plan(SMALL.replace("streaming", "local-model"), "b")
    assert conflicts([plan, other]) == [
        "the plans streaming and local-model share the control stable, and one takes all callers; "
        "state control_share in its stages"
    ]
    half = "share = 0.05\ncontrol_share = 0.9"
    apart = [parse_plan(text.replace("share = 0.05", half), "c") for text in (SMALL, SMALL.replace("streaming", "b"))]
    assert conflicts(apart) == []
    on_top = parse_plan(SMALL.replace('"streaming"', '"b"').replace('"stable"', '"streaming"'), "d")
    assert conflicts([plan, on_top]) == [
        "the plans streaming and b are both about the cohort streaming; end one of them, or give it another cohort"
    ]
    assert conflicts([plan]) == []
    assert "two plans have the name streaming" in conflicts([plan, plan])[0]


def test_stages_are_found_by_name() -> None:
    plan = parse_plan(SMALL + '[[stages]]\nname = "all"\nshare = 1\n', "a")
    assert plan.stage_after("canary") == plan.stage("all")
    assert plan.stage_after("all") is None
    assert not plan.stage("all").has_control
    with pytest.raises(ConfigError, match="there is no stage 'half'; known are canary, all"):
        plan.stage("half")


def test_the_plan_of_the_guide_is_one() -> None:
    shown, *_ = re.findall(
        r"```toml\n(.*?)```", (ROOT / "docs" / "how-to" / "rollout-plan.md").read_text(encoding="utf-8"), re.DOTALL
    )
    plan = parse_plan(shown, "rollout-plan.md")
    assert plan.primary == parse_plan(SMALL, "defaults").primary
    assert [stage.name for stage in plan.stages] == ["canary", "quarter"]


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "rollouts").glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_plans(path: Path) -> None:
    plan = parse_plan(path.read_text(encoding="utf-8"), str(path))
    assert plan.name == path.stem
    assert plan.stages[0].share <= 0.05


def test_share_is_changed_in_one_of_two_ways_without_fingerprint() -> None:
    with_file = parse_plan(SMALL + '\n[apply]\nflags = "flags.json"\nsettle = "5s"\n', "p")
    assert with_file.apply is not None
    assert (with_file.apply.flags, with_file.apply.flag, with_file.apply.settle.seconds) == ("flags.json", "voice", 5)
    assert with_file.fingerprint == parse_plan(SMALL, "p").fingerprint
    with pytest.raises(ConfigError) as caught:
        parse_plan(SMALL + '\n[apply]\ncommand = ["x"]\nurl = "http://host"\nflag = "voice"\nsettle = "soon"\n', "p")
    faults = "\n".join(caught.value.faults)
    for part in ("apply.url: is not a known key", "apply.flag: belongs to flags", "apply.settle"):
        assert part in faults
    with pytest.raises(ConfigError, match=r"apply\.flags: is missing"):
        parse_plan(SMALL + "\n[apply]\n", "p")
    with pytest.raises(ConfigError, match=r"apply\.command: is given together with flags"):
        parse_plan(SMALL + '\n[apply]\ncommand = ["x"]\nflags = "flags.json"\n', "p")


HOUR = 3600 * 10**9
DIFFERENCE: dict[str, Any] = {
    "name": "p95",
    "kind": "quantile",
    "status": "open",
    "unit": "s",
    "candidate": 0.9,
    "control": 0.88,
    "difference": 0.02,
    "lower": -0.05,
    "upper": 0.12,
    "margin": 0.1,
    "p_value": 0.3,
    "turns": 100,
    "turns_needed": 100,
    "reason": None,
}
SHARES = {
    "threshold": 0.88,
    "allowed": 0.05,
    "beyond": 0.052,
    "control": 0.05,
    "lower": -0.01,
    "beyond_margin": 0.029,
    "upper": 0.062,
}
CHECK: dict[str, Any] = DIFFERENCE | {"shares": SHARES, "eligible": 120}


def look(at_h: float, turns: int, decision: Decision = "hold", **changes: Any) -> LoggedVerdict:
    cohorts = {"candidate": {"name": "streaming", "turns": turns}, "control": {"name": "stable", "turns": 3 * turns}}
    fields = {
        "verdict": decision,
        "sentence": decision,
        "reasons": [decision],
        "plan": {"name": "p", "fingerprint": "f"},
        "stage": "canary",
        "turns_needed": 300,
        "cohorts": cohorts,
        "checks": [CHECK],
        "slices": [],
        "share": 0.2,
    }
    return LoggedVerdict(round(at_h * HOUR), "canary", None, msgspec.convert({**fields, **changes}, RolloutVerdict))


def test_the_turns_needed_are_there_when_the_rate_brings_them() -> None:
    progress = rollout_progress(plan(), [look(1, 100), look(2, 250), look(3, 400)], "canary")
    assert progress is not None
    assert progress.turns_per_hour == pytest.approx(150)
    assert progress.ready_unix_ns == pytest.approx((3 + 300 / 150) * HOUR)


def test_quantile_check_shows_its_share_first_and_turn_count() -> None:
    progress = rollout_progress(plan(), [look(1, 100)], "canary")
    assert progress is not None
    (row,) = progress.checks
    assert (row.beyond, row.margin) == ("2.9 %, at most 6.2 %", "100 ms")
    assert (row.candidate, row.difference, row.bounds) == ("900 ms", "+20.0 ms", "−50.0 to +120 ms")
    assert row.status_text == "not known yet, 100 of 120 turns"
    assert f"{explanation_of(progress.checks)}".startswith(
        "At most 5 % of the control's turns take longer than its p95: "
    )


def test_funnel_shows_deciding_share_without_empty_looks() -> None:
    looks = [look(1, 100, checks=[]), look(2, 300)]
    progress = rollout_progress(plan(), looks, "canary")
    assert progress is not None
    funnel = progress.funnel
    assert (funnel.unit, funnel.limit, funnel.limit_text) == ("share", 0.05, "5 % may be")
    assert [(point.estimate, point.upper) for point in funnel.points] == [(None, None), (0.029, 0.062)]
    assert (funnel.text(0.029), funnel.bounds_text(funnel.points[-1])) == ("2.9 %", "at most 6.2 %")


def test_a_check_without_shares_has_its_differences() -> None:
    progress = rollout_progress(plan(), [look(1, 100, checks=[DIFFERENCE]), look(2, 200, checks=[])], "canary")
    assert progress is not None
    funnel = progress.funnel
    assert (funnel.unit, funnel.limit, funnel.limit_text) == ("s", 0.1, "margin 100 ms")
    assert [(point.lower, point.estimate, point.upper) for point in funnel.points] == [(-0.05, 0.02, 0.12), (None,) * 3]
    assert (funnel.text(0.02), funnel.bounds_text(funnel.points[0])) == ("+20.0 ms", "−50.0 to +120 ms")
    row = logged_row(msgspec.convert(DIFFERENCE, CheckVerdict), "p95")
    assert (row.beyond, row.used, row.bounds, row.status_text) == ("", "", "−50.0 to +120 ms", "not known yet")
    assert explanation_of(progress.checks) is None


@pytest.mark.parametrize(
    ("lower", "upper", "bounds"),
    [(-0.05, None, "at least −50.0 ms"), (None, 0.12, "at most +120 ms"), (None, None, "–")],
)
def test_a_side_that_nothing_bounds_is_not_written(lower: float | None, upper: float | None, bounds: str) -> None:
    check = msgspec.convert({**CHECK, "lower": lower, "upper": upper}, CheckVerdict)
    assert logged_row(check, "p95").bounds == bounds


@pytest.mark.parametrize("last", [look(3, 400, "promote"), look(3, 400, turns_needed=None), look(3, 250)])
def test_no_time_is_given_if_nothing_is_awaited_or_arrives(last: LoggedVerdict) -> None:
    looks = [look(2, 250), last]
    progress = rollout_progress(plan(), looks, "canary")
    assert progress is not None
    assert progress.ready_unix_ns is None


def test_rollback_ends_the_line_and_changes_are_newest_first() -> None:
    looks = [look(1, 100), look(2, 200), look(3, 300, "roll_back"), look(4, 400, "roll_back")]
    progress = rollout_progress(plan(), looks, "canary")
    assert progress is not None
    assert [stage.state for stage in progress.stages] == ["rolled_back"]
    assert [change.at_unix_ns // HOUR for change in progress.changes] == [3, 1]
    assert rollout_progress(plan(), [], "canary") is None


def history(*looks: tuple[int, int], stage: str = "canary") -> tuple[Look, ...]:
    return tuple(
        Look(at_unix_ns=at_s * NS_PER_S, stage=stage, candidate_turns=turns, control_turns=0, verdict="hold")
        for at_s, turns in looks
    )


def test_the_rate_is_that_of_the_looks_at_this_stage() -> None:
    estimate = forecast(history((100, 10), (110, 20), (140, 50)), 80)
    assert estimate is not None
    assert estimate.turns_per_s == pytest.approx(1.0)
    assert estimate.due_unix_ns == 220 * NS_PER_S


def test_looks_of_long_ago_and_of_other_stages_do_not_count() -> None:
    slow_then_fast = history((0, 0), (100_000, 10), (100_010, 30))
    estimate = forecast(slow_then_fast, 20)
    assert estimate is not None
    assert estimate.turns_per_s == pytest.approx(2.0)
    other = history((0, 0), (10, 1000), stage="before")
    here = (*other, *history((20, 5)))
    assert forecast(here, 20) is None


@pytest.mark.parametrize(
    "looks", [(), ((10, 100),), ((10, 100), (20, 100)), ((20, 100), (10, 200)), ((10, 1), (20, 5))]
)
def test_without_a_rate_there_is_no_forecast(looks: tuple[tuple[int, int], ...]) -> None:
    assert forecast(history(*looks), 100) is None


def test_unknown_rate_gives_no_forecast() -> None:
    assert forecast(history((0, 0), (10, 100)), None) is None
