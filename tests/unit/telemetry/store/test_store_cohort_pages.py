"""The page of cohorts, compared with the gate's own checks and the rollout's own verdict over the same turns."""

import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from telemetry.model.formatting import percent
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.objectives.objective import Objective
from telemetry.rollout.checks import check_results
from telemetry.rollout.cohort_comparison import default_plan
from telemetry.rollout.cohort_turns import CALL
from telemetry.rollout.plan_document import parse_plan
from telemetry.sidecar.rollouts.rollout_log import RolloutLog
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection
from telemetry.store.database import read_only
from telemetry.store.questions.cohorts import CohortsAnswer, CohortsQuestion, read_cohorts
from telemetry.store.questions.pages import ViewQuestion
from telemetry.store.questions.rollouts import question_of
from telemetry.store.reader import StoreReader
from tests.fixtures_rollouts import read_rollouts
from tests.fixtures_turns import MS, SECOND, START_UNIX_NS, Run, client_turn, fill_store, synthetic_run
from tests.unit.dashboard.rollout_scenes import PLAN, Rollout, S, fill_rollout

NOW = START_UNIX_NS + 10_000 * SECOND
ROLLOUT_NOW = 1_795_000_000 * S
RUN = synthetic_run(turns=240)


def latency(turn: Turn) -> int | float | None:
    return METRICS["voice_to_voice"].value(turn)


def page_of(store: Path, asked: CohortsQuestion | None = None, now_unix_ns: int = ROLLOUT_NOW) -> CohortsAnswer:
    with StoreReader(store, wall_clock_ns=lambda: now_unix_ns) as reader:
        return reader.cohorts_page(asked or CohortsQuestion())


@contextmanager
def asking(store: Path) -> Iterator[StoreConnection]:
    with read_only(store) as database, database.snapshot() as cursor:
        yield StoreConnection(cursor, store)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_store(tmp_path_factory.mktemp("store"), RUN)


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_rollout(tmp_path_factory.mktemp("bad"), Rollout(slower_ms=180, turns=2400, looks=3), ROLLOUT_NOW)


@pytest.mark.slow
def test_two_cohorts_are_compared_by_the_gates_own_checks(store: Path) -> None:
    with StoreReader(store, wall_clock_ns=lambda: NOW) as reader:
        page = reader.cohorts_page(CohortsQuestion())
        plan = default_plan("control", "streaming")
        turns = reader.rollout_turns(question_of(plan, None))
    compared = page.comparison
    assert compared is not None
    assert (compared.control.cohort, compared.candidate.cohort) == ("control", "streaming")
    assert compared.results == check_results(plan, turns.candidate, turns.control)
    assert (page.turns, page.rollout, compared.plan) == ("chosen", None, None)
    for of in (compared.control, compared.candidate):
        every = [turn for turn in RUN.turns if turn.source == "client" and turn.cohort == of.cohort]
        heard = [turn for turn in every if turn.outcome not in ("invalid", "cut")]
        invalid = [turn for turn in every if turn.outcome == "invalid"]
        assert (of.turns, of.eligible, of.invalid) == (len(every), len(heard), len(invalid))
        assert of.callers == len({turn.call_id for turn in every})
        values = [value for turn in heard if (value := latency(turn)) is not None]
        points = [point for point in compared.curves if point.cohort == of.cohort]
        assert (points[0].value_ns, points[-1].value_ns) == (min(values), max(values))
        for point in points:
            share = sum(value <= point.value_ns for value in values) / len(heard)
            assert abs(point.share - share) < 1e-9
        assert points[-1].share == len(values) / len(heard), "who was never answered is never within a time"


@pytest.mark.slow
def test_sentence_states_assumed_margins_without_plan(store: Path) -> None:
    answer = page_of(store, now_unix_ns=NOW)
    assert answer.sentence is not None
    assert "assumed (p50 of voice to voice 100 ms" in answer.sentence.basis
    assert "not a verdict to act on" in answer.sentence.basis
    assert answer.comparison is not None
    assert [figure.row.name for figure in answer.comparison.figures if not figure.is_assumed] == ["cost per turn"]
    assert answer.comparison.sample_ratio is None, "no plan states the shares"
    assert not any("not within" in figure.row.name for figure in answer.comparison.figures), "nor when a turn is good"


@pytest.mark.slow
@pytest.mark.parametrize("threshold_ms", [1_000, 650])
def test_good_turns_are_those_of_the_objective_in_force(store: Path, threshold_ms: int) -> None:
    """The reference is counted from the turns."""
    parts = Objective("slow only", "metric", 0.9, "voice_to_voice", 5_000 * MS, route="cloud")
    asked = replace(parts, name="heard", threshold=threshold_ms * MS, route=None)
    view = ViewQuestion(objectives=(parts, asked))
    answer = page_of(store, CohortsQuestion(view=view), NOW)
    assert answer.comparison is not None
    (row,) = (
        figure.row for figure in answer.comparison.figures if figure.row.name.startswith("share of turns with voice")
    )
    assert row.name == f"share of turns with voice to voice not within {threshold_ms:,} ms"
    of_streaming = [turn for turn in RUN.turns if turn.source == "client" and turn.cohort == "streaming"]
    heard = [turn for turn in of_streaming if turn.outcome not in ("invalid", "cut")]
    bad = sum((value := latency(turn)) is None or value > threshold_ms * MS for turn in heard)
    assert row.candidate == percent(bad / len(heard))


def test_one_cohort_is_not_compared(tmp_path: Path) -> None:
    of = Run(turns=[client_turn(index, cohort="only") for index in range(30)])
    answer = page_of(fill_store(tmp_path, of), now_unix_ns=NOW)
    assert answer.comparison is None
    assert answer.cohorts == ("only",)
    assert answer.run is not None


@pytest.mark.slow
def test_rollout_verdict_comes_first_and_its_checks_are_figures(bad: Path) -> None:
    answer = page_of(bad)
    (record,) = read_rollouts(bad)
    newest = record.verdicts[-1].verdict
    assert answer.rollout is not None
    assert answer.rollout.verdict is not None
    assert answer.rollout.verdict.verdict.sentence == newest.sentence
    assert answer.rollout.cause is not None, "the newest look only says that it was rolled back"
    assert "is worse" in answer.rollout.cause.verdict.sentence
    assert (answer.turns, answer.sentence, answer.rollout.late_turns) == ("verdict", None, 0)
    assert answer.comparison is not None
    deciding = {figure.row.name: figure.row for figure in answer.comparison.figures if figure.decides}
    plan = parse_plan(PLAN, "p")
    stated = [check for check in plan.checks if not check.is_optional]  # no turn says whether a cache answered
    for check, logged in zip(stated, newest.checks, strict=True):
        row = deciding.pop(check.sentence)
        assert (row.status, row.difference_value, row.lower) == (logged.status, logged.difference, logged.lower)
    assert not deciding
    ratio = answer.comparison.sample_ratio
    assert ratio is not None
    assert newest.sample_ratio is not None
    assert ratio.p_value == newest.sample_ratio.p_value
    names = [figure.row.name for figure in answer.comparison.figures if figure.group == "latency"]
    assert names == [f"{name} of voice to voice" for name in ("p50", "p95", "p99")]


@pytest.mark.slow
def test_late_turns_are_counted_but_not_used_by_verdict(bad: Path, tmp_path: Path) -> None:
    shutil.copytree(bad, tmp_path / "store")
    begin = ROLLOUT_NOW - 2400 * S
    late = [
        client_turn(10_000 + index, cohort="streaming", started_unix_ns=begin + index * S, voice_to_voice_ms=100.0)
        for index in range(40)
    ]
    fill_store(tmp_path / "store", Run(turns=late))
    before, after = page_of(bad), page_of(tmp_path / "store")
    assert after.rollout is not None
    assert after.rollout.late_turns == 40
    assert before.comparison is not None
    assert after.comparison is not None
    deciding = [[figure for figure in of.figures if figure.decides] for of in (before.comparison, after.comparison)]
    assert deciding[0] == deciding[1]


@pytest.mark.slow
def test_chosen_turns_have_own_sentence_by_margins_of_plan(bad: Path) -> None:
    for asked in (
        CohortsQuestion(turns="chosen"),
        CohortsQuestion(view=ViewQuestion(filter=Filter(noise_profile="street"))),
        CohortsQuestion(view=ViewQuestion(window_ns=1200 * S)),
    ):
        answer = page_of(bad, asked)
        assert answer.turns == "chosen"
        assert answer.rollout is not None
        assert answer.rollout.verdict is not None
        assert answer.sentence is not None
        assert answer.sentence.basis == "by the margins of the rollout streaming"
        assert answer.comparison is not None
        assert answer.comparison.sample_ratio is None, "the chosen turns may be of several stages"


@pytest.mark.slow
def test_a_candidate_that_never_came_is_held_and_not_compared(tmp_path: Path) -> None:
    of = Run(turns=[client_turn(index, cohort="stable") for index in range(60)])
    store = fill_store(tmp_path, of)
    plan = parse_plan(PLAN, "streaming")
    with RolloutLog(store, plan, PLAN, NOW):
        pass
    answer = page_of(store, now_unix_ns=of.turns[-1].started_unix_ns)  # while the load generator is at work
    assert answer.rollout is not None
    assert answer.rollout.verdict is None
    assert answer.sentence is not None
    assert answer.sentence.state == "open"
    assert "no turn of streaming" in answer.sentence.sentence
    assert answer.comparison is not None
    assert answer.comparison.figures == ()


@pytest.mark.slow
def test_two_of_three_cohorts_can_be_chosen(tmp_path: Path) -> None:
    turns = [client_turn(index, cohort=("a", "b", "c")[index % 3]) for index in range(300)]
    store = fill_store(tmp_path, Run(turns=turns))
    answer = page_of(store, CohortsQuestion(control="c", candidate="b"), NOW)
    assert answer.comparison is not None
    assert (answer.comparison.control.cohort, answer.comparison.candidate.cohort) == ("c", "b")
    assert answer.cohorts == ("a", "b", "c")
    assert page_of(store, CohortsQuestion(control="c", candidate="c"), NOW).comparison is None
    only = page_of(store, CohortsQuestion(candidate="c"), NOW).comparison
    assert only is not None
    assert (only.control.cohort, only.candidate.cohort) == ("a", "c")


@pytest.mark.slow
def test_more_turns_than_a_page_reads_are_drawn_by_whole_callers(tmp_path: Path) -> None:
    turns = [
        client_turn(index, call_id=f"call-{index // 4}", cohort=("a", "b")[index // 4 % 2]) for index in range(4000)
    ]
    asked = question_of(default_plan("a", "b"), None)
    with asking(fill_store(tmp_path, Run(turns=turns))) as connection:
        whole = read_cohorts(connection, asked)
        drawn = {most: read_cohorts(connection, asked, most) for most in (2000, 1000)}
    assert (whole.one_in, drawn[2000].one_in, drawn[1000].one_in) == (1, 2, 4)
    for drawn_page in drawn.values():
        assert drawn_page.sizes == whole.sizes, "sizes are of all turns"
        for cohort in (drawn_page.candidate, drawn_page.control):
            of_call = np.unique(cohort.code(CALL), return_counts=True)[1]
            assert set(of_call.tolist()) == {4}, "a call is drawn in whole"
            assert 0.7 < cohort.turns * drawn_page.one_in / 2000 < 1.3


@pytest.mark.slow
def test_a_verdict_changes_the_state_by_which_answers_are_kept(bad: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(bad, store)
    with StoreReader(store, wall_clock_ns=lambda: ROLLOUT_NOW) as reader:
        before = reader.state()
        assert reader.state() == before
        with RolloutLog(store, parse_plan(PLAN, "streaming"), PLAN, ROLLOUT_NOW) as log:
            log.move("50-percent", ROLLOUT_NOW)
        assert reader.state() != before


@pytest.mark.slow
def test_newest_rollout_of_cohorts_is_shown(bad: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(bad, store)
    text = PLAN.replace('name = "streaming"', 'name = "again"')
    with RolloutLog(store, parse_plan(text, "again"), text, ROLLOUT_NOW + S):
        pass
    answer = page_of(store, now_unix_ns=ROLLOUT_NOW + 2 * S)
    assert answer.rollout is not None
    assert (answer.rollout.name, answer.rollout.verdict) == ("again", None)


def test_every_dimension_has_its_values(store: Path) -> None:
    by_value: dict[str, int] = defaultdict(int)
    for turn in RUN.turns:
        if turn.source == "client" and turn.noise_profile is not None:
            by_value[turn.noise_profile] += 1
    asked = replace(question_of(default_plan("control", "streaming"), None), slices=("noise_profile", "route"))
    with asking(store) as connection:
        cohorts = read_cohorts(connection, asked)
    assert cohorts.candidate.labels["noise_profile"] == tuple(sorted(by_value))
    assert cohorts.control.labels == cohorts.candidate.labels
