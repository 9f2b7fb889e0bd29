"""The pages Cohorts and Rollout by Streamlit's own test runner, over verdicts of the real gate and its log."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pytest

from dashboard.components.trust import turns_trust
from dashboard.components.verdicts import sample_ratio
from dashboard.source import ENV_STORE
from telemetry.charts import over_time
from telemetry.charts.drawing import LIGHT
from telemetry.model.durations import Duration
from telemetry.rollout.cohort_comparison import CohortSize, ComparedCohorts, compare_cohorts
from telemetry.rollout.completeness import AssignedUnits, UnitCounts
from telemetry.rollout.gate import decide
from telemetry.rollout.plan import RolloutPlan, Stage
from telemetry.rollout.plan_document import parse_plan
from telemetry.rollout.verdict import RolloutVerdict, rollout_verdict
from telemetry.sidecar.rollouts import rollout_log
from telemetry.sidecar.rollouts.rollout_log import RolloutLog
from telemetry.store.questions.rollouts import evidence_of, question_of
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import Run, client_turn, fill_store, run_span
from tests.rollout_cohorts import cohort, plan
from tests.unit.dashboard.measured_runs import HOUR, NOW, written
from tests.unit.dashboard.opened_pages import chip, html_of, opened, plain, says, text_of
from tests.unit.dashboard.rollout_scenes import PLAN, Rollout, S, fill_rollout, turns_of

pytestmark = pytest.mark.slow

STREAMING = parse_plan(PLAN, "streaming")
WHOLE, SLOW, SHORT = Rollout(), Rollout(slower_ms=180, turns=2400, looks=4), Rollout(turns=1200, looks=1)


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Rollout], Path]:
    """Stores of rollouts, each filled once, which no test writes to."""

    @cache
    def filled_by(rollout: Rollout) -> Path:
        return fill_rollout(tmp_path_factory.mktemp("rollout") / "store", rollout, time.time_ns())

    return filled_by


@pytest.fixture
def dashboard_of(
    store: Path, filled_once: Callable[[Rollout], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Rollout], None]:
    """Make the store of a rollout that of the dashboard."""
    del store
    return lambda rollout: monkeypatch.setenv(ENV_STORE, str(filled_once(rollout)))


def shown(page: str, **link: str) -> str:
    return text_of(opened(page, **link))


def look(store: Path, plan: RolloutPlan, others: Sequence[RolloutPlan] = ()) -> str:
    """One look at what the store holds, kept in its log; gives the sentence."""
    now = time.time_ns()
    with StoreReader(store) as reader, RolloutLog(store, plan, PLAN, now) as log:
        evidence = reader.rollout_turns(question_of(plan, log.history.stage_since_unix_ns))
        verdict = decide(plan, evidence_of(evidence, others), log.history, now)
        log.append(plan, verdict)
    return verdict.sentence


def test_bounds_of_only_look_at_stage_are_drawn() -> None:
    layers = over_time.funnel(LIGHT, "share", 0.05, "5 % may be")["layer"]
    (alone,) = (
        layer for layer in layers if any(step.get("groupby") == ["stage"] for step in layer.get("transform", ()))
    )
    assert alone["mark"]["type"] == "rule"
    assert (alone["encoding"]["y"]["field"], alone["encoding"]["y2"]["field"]) == ("lower", "upper")
    assert {"filter": "datum.looks === 1"} in alone["transform"]


def test_without_a_rollout_the_page_says_what_to_do(store: Path) -> None:
    StoreWriter(store).close()
    commands = ("voiceprobe sidecar --rollout rollout.toml", "voiceprobe rollout check", "voiceprobe demo --rollout")
    says(shown("rollout"), "No rollout yet", *commands)


def test_rollout_without_looks_and_unknown_name_have_sentences(store: Path) -> None:
    fill_store(store, Run(turns=[client_turn(0, cohort="stable")]))
    with RolloutLog(store, STREAMING, PLAN, time.time_ns()):
        pass
    assert "No verdict on streaming yet" in shown("rollout")
    assert "That rollout is not in this store" in shown("rollout", rollout="another")


@pytest.mark.parametrize(("cohort", "missing"), [("stable", "candidate streaming"), ("streaming", "control stable")])
def test_a_cohort_that_never_came_holds_on_both_pages(store: Path, cohort: str, missing: str) -> None:
    now = time.time_ns()
    turns = [client_turn(index, cohort=cohort, started_unix_ns=now - (400 - index) * S) for index in range(300)]
    fill_store(store, Run(turns=turns))
    with RolloutLog(store, STREAMING, PLAN, now - 400 * S):
        pass
    sentence = look(store, STREAMING)
    assert f"no turn of the {missing} has arrived" in sentence
    assert f"cohorts seen are {cohort}" in sentence
    for page in ("rollout", "cohorts"):
        text = shown(page)
        assert f"○ hold {sentence}" in text
        assert "✓ promote" not in text
    assert "could not be compared at any look yet" in shown("rollout")
    assert "Nothing to compare" in shown("cohorts")


def test_a_plan_that_was_edited_midway_holds(store: Path) -> None:
    fill_rollout(store, Rollout(turns=2000, looks=2, moves=False), time.time_ns() - S)
    edited = replace(STREAMING, primary=replace(STREAMING.primary, margin=2 * STREAMING.primary.margin))
    sentence = look(store, edited)
    assert "the plan was edited after 2 looks" in sentence
    for page in ("rollout", "cohorts"):
        assert f"○ hold {sentence}" in shown(page)


def test_two_plans_over_one_cohort_hold(store: Path) -> None:
    fill_rollout(store, Rollout(turns=2000, looks=2, moves=False), time.time_ns() - S)
    sentence = look(store, STREAMING, [replace(STREAMING, name="other", control="another")])
    assert "the plans streaming and other are both about the cohort streaming" in sentence
    assert f"○ hold {sentence}" in shown("rollout")


def test_a_roll_back_says_why_it_was(dashboard_of: Callable[[Rollout], None]) -> None:
    dashboard_of(SLOW)
    for page in ("rollout", "cohorts"):
        text = shown(page)
        assert "✕ roll back roll back streaming at stage 20-percent: rolled back at" in text
        assert "roll back streaming at stage 20-percent: p95 of voice to voice is worse:" in text
    assert text.index("✕ roll back") < text.index("Voice to voice"), "the sentence is first"


def test_good_rollout_shows_stages_history_and_what_it_awaits(dashboard_of: Callable[[Rollout], None]) -> None:
    dashboard_of(WHOLE)
    text = shown("rollout")
    assert re.search(r"20 % 20-percent done .* 50 % 50-percent (done|now)", text)
    assert re.search(r"the candidate gets [\d,]+ turns an hour", text)
    what = "share of the candidate's turns beyond the control's by more than 100 ms, where 5 % may be"
    assert f"p95 of voice to voice: {what}" in text
    assert "At most 5 % of the control's turns take longer than its p95: " in text
    assert len(re.findall(r"✓ promote promote streaming|○ hold \d", text)) >= 1
    assert "the verdict's history" in text


def test_checks_without_shares_are_shown_by_their_differences(store: Path) -> None:
    def without_shares(*of: Any) -> RolloutVerdict:
        verdict = rollout_verdict(*of)
        checks, slices = (
            tuple(msgspec.structs.replace(row, shares=None, eligible=None) for row in rows)
            for rows in (verdict.checks, verdict.slices)
        )
        return msgspec.structs.replace(verdict, checks=checks, slices=slices)

    with pytest.MonkeyPatch.context() as version:
        version.setattr(rollout_log, "rollout_verdict", without_shares)
        fill_rollout(store, Rollout(turns=1200, looks=2, moves=False), time.time_ns() - S)
    text = shown("rollout")
    assert "p95 of voice to voice: difference, against the margin 100 ms" in text
    assert "beyond the margin" not in text
    assert "take longer than its p95" not in text
    assert "Nothing to compare" not in shown("cohorts")


def test_the_looks_of_the_past_are_chosen_and_the_link_keeps_it(dashboard_of: Callable[[Rollout], None]) -> None:
    dashboard_of(WHOLE)
    app = opened("rollout")

    def stages_of_history() -> set[str]:
        assert not app.exception
        return set(re.findall(r"</th><td>([^<]+)</td><td>", html_of(app)))

    def newest_verdict() -> str:
        """Below the title, which says how old the answer is."""
        return text_of(app).partition("rollout streaming")[2].partition(" look ")[0]

    assert app.selectbox(key="choice_rollout").options == ["newest rollout", "streaming"]
    assert app.selectbox(key="choice_at_stage").options == ["every stage", "20-percent", "50-percent", "80-percent"]
    assert stages_of_history() == {"20-percent", "50-percent", "80-percent"}
    verdict = newest_verdict()
    app.selectbox(key="choice_at_stage").set_value("20-percent").run()
    assert app.query_params["at_stage"] == "20-percent"
    assert stages_of_history() == {"20-percent"}
    assert newest_verdict() == verdict
    app.selectbox(key="choice_decision").set_value("roll_back").run()
    assert stages_of_history() == set()
    assert "No look matches the filter; widen it above." in text_of(app)
    assert newest_verdict() == verdict
    for name in ("at_stage", "decision"):
        app.selectbox(key=f"choice_{name}").set_value("").run()
    assert stages_of_history() == {"20-percent", "50-percent", "80-percent"}


def test_telemetry_chip_covers_turns_of_both_cohorts_only(store: Path) -> None:
    now = time.time_ns()
    cohorts = ["stable"] * 30 + ["streaming"] * 20 + ["third"] * 10
    turns = [
        client_turn(index, cohort=cohort, started_unix_ns=now - (65 - index) * S)
        if index not in (4, 35)  # one of each cohort
        else client_turn(
            index,
            cohort=cohort,
            started_unix_ns=now - (65 - index) * S,
            outcome="invalid",
            invalid_reasons=("frame lateness",),
        )
        for index, cohort in enumerate(cohorts)
    ]
    fill_store(store, Run(turns=turns))
    look(store, STREAMING)
    app = opened("rollout")
    text = text_of(app)
    assert "rollout streaming candidate streaming control stable 50 turns of both within 28 days" in text
    assert chip(app).startswith("○ 2 of 50 turns invalid · telemetry")
    assert "2 invalid (4 %), which no figure counts" in text, "behind the chip"


CONTROL: Final[dict[str, Any]] = {"run_id": "a", "turns": 40, "cohort": "stable", "calibrated": "0.4"}
CANDIDATE: Final[dict[str, Any]] = {"run_id": "b", "turns": 10, "cohort": "streaming", "calibrated": "1.2"}
OTHER: Final[dict[str, Any]] = {"run_id": "c", "turns": 30, "cohort": "third", "invalid": 10, "lost": 3}


@pytest.mark.parametrize(
    ("runs", "label"),
    [
        ([CONTROL, CANDIDATE], "✓ valid · telemetry complete · calibrated ± 1.2 ms"),
        ([CONTROL, CANDIDATE, OTHER], "✓ valid · telemetry complete · calibrated ± 1.2 ms"),
        (
            [CONTROL, CANDIDATE, OTHER | {"cohort": "stable", "at": NOW - 29 * 24 * HOUR}],
            "✓ valid · telemetry complete · calibrated ± 1.2 ms",
        ),
        (
            [CONTROL, OTHER | {"cohort": "streaming", "lost": 0}],
            "○ 10 of 70 turns invalid · telemetry complete · 1 of 2 runs calibrated",
        ),
        ([CONTROL | {"lost": 2}, CANDIDATE | {"lost": 1}], "✕ valid · 3 turns lost · calibrated ± 1.2 ms"),
        ([CONTROL | {"cohort": "streaming"}], "✓ valid · telemetry complete · calibrated ± 0.4 ms"),
    ],
    ids=["both", "a third cohort", "before the period", "invalid", "lost", "the candidate alone"],
)
def test_the_chip_says_what_weakens_the_figures(tmp_path: Path, runs: Sequence[dict[str, Any]], label: str) -> None:
    for run in runs:
        written(tmp_path, **run)
    with RolloutLog(tmp_path, STREAMING, PLAN, NOW), StoreReader(tmp_path, wall_clock_ns=lambda: NOW) as reader:
        measured = reader.rollout_page().measured
    assert measured is not None
    assert turns_trust(measured).label == label


def test_a_link_to_looks_that_cannot_be_meant_says_so(dashboard_of: Callable[[Rollout], None]) -> None:
    dashboard_of(SHORT)
    assert "the link asks for looks '2h', not one of 1h, 1d, 7d: left out" in shown("rollout", looks="2h")


def test_expected_time_of_turns_is_shown_only_while_they_come(store: Path) -> None:
    now = time.time_ns()
    fill_rollout(store, Rollout(turns=900, looks=5, moves=False), now)
    assert re.search(r"more of the candidate are needed there about .* at this traffic|is not known", shown("rollout"))
    sentence = look(store, STREAMING)
    assert sentence.startswith("hold")


def test_cohorts_page_has_every_ratio_with_difference_and_bounds(dashboard_of: Callable[[Rollout], None]) -> None:
    dashboard_of(WHOLE)
    page = html_of(opened("cohorts"))
    for name in (
        *("p50 of voice to voice", "p95 of voice to voice", "p99 of voice to voice"),
        *("not within 1,000 ms", "no reply ratio", "errors ratio", "fallback ratio", "abandonment ratio"),
        *("share of turns that no cache answered", "cost per turn"),
    ):
        assert re.search(rf'<th scope="row">[^<]*{re.escape(name)}', page), name
    text = plain(page)
    assert "no plan states a price" in text
    says(text, "Sample ratio:", "exact binomial test", "Telemetry:", "Invalid turns of streaming:", "Slices:")
    assert re.search(r"noise = street [\d.]+ %, at most [\d.]+ %", text), "too few for an interval of the quantile's"


def test_chosen_turns_never_contradict_the_verdict_above_them(dashboard_of: Callable[[Rollout], None]) -> None:
    dashboard_of(SLOW)
    text = shown("cohorts", turns="chosen")
    assert text.index("✕ roll back") < text.index("○ no verdict of the turns that were chosen here:")
    assert "these are other turns than those of the verdict above, which is in force" in text
    assert "✓ within every margin" not in text
    # The choice is in the link of a chosen run, too, and is that of the page which the link opens.
    app = opened("cohorts", run="run-1")
    app.selectbox(key="choice_turns").set_value("verdict").run()
    assert app.query_params == {"run": "run-1", "turns": "verdict"}
    assert opened("cohorts", run="run-1", turns="verdict").selectbox(key="choice_turns").value == "verdict"


def test_the_plan_decides_how_much_may_be_invalid(store: Path) -> None:
    """The plan allows 5 %, the default is 1 %: 2 % of these turns are invalid."""
    of = Rollout(slower_ms=180, turns=2400, looks=4, invalid_each=50)
    fill_rollout(store, of, time.time_ns(), PLAN + "[completeness]\ninvalid_turns = 0.05\n")
    says(shown("cohorts"), "✕ roll back", "at most 5 % may be", no=("no verdict on the service",))
    says(shown("cohorts", turns="chosen"), "streaming is worse than stable")
    says(shown("rollout"), no=("no verdict on the service",))


def test_lost_process_does_not_contradict_verdict_of_plan(store: Path) -> None:
    """Fewer calls than requested do not affect a comparison if both cohorts had fewer."""
    now = time.time_ns()
    fill_rollout(store, SLOW, now)
    lost = replace(run_span("run-1", now - 2400 * S, "start"), attributes=_of_process("run-1", "start"))
    with StoreWriter(store) as writer:
        writer.append(Batch(spans=[lost]))
    decides = "the plan of the rollout streaming decides, which allows 1 % invalid turns"
    lost = "1 of 2 generator processes was lost"
    says(shown("cohorts"), lost, "✕ roll back", decides, no=("no verdict on the service",))
    says(shown("cohorts", turns="chosen"), "streaming is worse than stable")


def _of_process(run_id: str, phase: str) -> dict[str, object]:
    return {
        f"voice.run.{name}": value for name, value in (("run_id", run_id), ("process_id", "gone"), ("phase", phase))
    }


def test_without_a_plan_too_many_invalid_turns_are_not_compared(store: Path) -> None:
    of = Rollout(slower_ms=180, turns=2400, invalid_each=50)
    with StoreWriter(store) as writer:
        writer.append(Batch(turns=turns_of(of, time.time_ns() - of.turns * S, range(of.turns), 0.5)))
    assert (
        "it is not decided whether streaming is worse than stable: 2 % of the turns of streaming are invalid"
        in shown("cohorts")
    )


def test_without_a_plan_the_comparison_names_its_margins(store: Path) -> None:
    of = Rollout(slower_ms=180, turns=2400)
    with StoreWriter(store) as writer:
        writer.append(Batch(turns=turns_of(of, time.time_ns() - of.turns * S, range(of.turns), 0.5)))
    worse = "✕ worse streaming is worse than stable: p95 of voice to voice is worse:"
    assumed = "no rollout's plan covers these cohorts: the margins of the 8 figures are assumed"
    says(shown("cohorts"), worse, assumed, "no plan states the shares")


def test_nothing_to_compare_says_how_cohorts_come_to_be(store: Path) -> None:
    fill_store(store, Run(turns=[client_turn(index) for index in range(30)]))
    says(shown("cohorts"), "No turn names a cohort.", "feature_flag.result.variant")


def test_names_of_others_are_text(store: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    turns = [
        msgspec.structs.replace(client_turn(index), cohort=(name, "control")[index % 2], noise_profile=name)
        for index in range(300)
    ]
    fill_store(store, Run(turns=turns))
    page = html_of(opened("cohorts"))
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_two_of_three_cohorts_are_chosen_and_change_places(store: Path) -> None:
    turns = [client_turn(index, cohort=("control", "b", "c")[index % 3]) for index in range(360)]
    fill_store(store, Run(turns=turns))
    app = opened("cohorts")

    def chosen() -> tuple[str | None, str | None]:
        control, candidate = (app.selectbox(key=f"cohorts_{name}").value for name in ("control", "candidate"))
        return control, candidate

    assert chosen() == ("control", "b")
    app.selectbox(key="cohorts_candidate").set_value("c").run()
    assert not app.exception
    assert chosen() == ("control", "c")
    assert "c" in app.query_params["candidate"], "the link keeps it"
    assert "120 turns of c (candidate)" in text_of(app)
    app.selectbox(key="cohorts_control").set_value("c").run()
    assert chosen() == ("c", "control")


def test_cohort_choice_against_plan_shows_roles_of_plan(store: Path) -> None:
    fill_rollout(store, SHORT, time.time_ns() - 2 * S)
    extra = [client_turn(10**6 + index, cohort="third", started_unix_ns=time.time_ns() - S) for index in range(8)]
    fill_store(store, Run(turns=extra))
    text = shown("cohorts", control="streaming", candidate="stable")
    assert re.search(r"turns of streaming \(candidate\) .* turns of stable \(control\)", text)
    assert "roll back" in text or "hold" in text


RNG = np.random.default_rng(1)
BOTH = cohort("streaming", 200, RNG), cohort("stable", 600, RNG)
BY_USER = plan(unit="user")


def line(candidate: AssignedUnits, control: AssignedUnits, stage: Stage | None = BY_USER.stages[0]) -> str:
    unnamed = candidate.unnamed_calls + control.unnamed_calls
    units = UnitCounts(candidate.known + control.known + unnamed, 0, candidate, control, unnamed)
    sizes = CohortSize("streaming", 200, 200, 0, 31), CohortSize("stable", 600, 600, 0, 93)
    compared_cohorts = ComparedCohorts(BY_USER, *BOTH, sizes, 0.0, is_planned=True, stage=stage, units=units)
    return sample_ratio(compare_cohorts(compared_cohorts))


def test_a_split_that_fits_says_which_loss_it_would_have_shown() -> None:
    text = line(AssignedUnits(250), AssignedUnits(750))
    assert "25 % of 1,000 users are on the candidate, 25 % planned at stage canary; p = 1 (exact binomial test)" in text
    assert "the split fits the plan; in the split of 1,000 users, a loss of " in text
    assert text.endswith("of those on the control would have been found with a probability of 80 %.</span></li>")


@pytest.mark.parametrize(
    ("candidate", "control", "words"),
    [
        (AssignedUnits(150), AssignedUnits(750), "the split does not fit the plan: callers are lost"),
        (AssignedUnits(150, 90), AssignedUnits(750), "the split is not known: 16.7 % of 900 users that are known"),
        (
            AssignedUnits(0, 200),
            AssignedUnits(0, 600),
            "31 callers on streaming and 93 callers on stable; users are assigned, and none is known",
        ),
    ],
)
def test_a_split_that_does_not_fit_or_is_not_known_is_named(
    candidate: AssignedUnits, control: AssignedUnits, words: str
) -> None:
    assert words in line(candidate, control)


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (None, "these turns may be of several stages, with other shares each"),
        (Stage("all", 1.0, 0.0, Duration(), 1), "there is no split to compare with at stage all"),
    ],
)
def test_cohorts_without_planned_shares_are_not_tested(stage: Stage | None, words: str) -> None:
    assert words in line(AssignedUnits(250), AssignedUnits(750), stage)
