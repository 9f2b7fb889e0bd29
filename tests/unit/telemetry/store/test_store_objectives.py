"""All objectives are counted together, over all turns and by cohort, as the rule counts them one by one."""

# ruff: noqa: S608 - the identifiers in these statements are our own

import math
import random
from pathlib import Path

import duckdb
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.model.bounds import measured_bounds, metric_bounds
from telemetry.model.errors import StoreError
from telemetry.model.intervals import grouped_interval
from telemetry.model.metrics import METRICS
from telemetry.model.semconv import OUTCOMES, Source
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import DECIDED, EligibleTurns, Judgment, has_value, judge_turn, resolve
from telemetry.objectives.slo import NotObservable, Objective, count_turns, default_objectives
from telemetry.store.answers import Filter
from telemetry.store.questions.filters import Condition
from telemetry.store.questions.objectives import JUDGMENTS, column_of, with_judgments
from telemetry.store.schema import turns_table
from tests.fixtures_turns import MS, SECOND, START_UNIX_NS, Run, client_turn, synthetic_run
from tests.nightly import examples
from tests.strategies_turns import turns
from tests.turns_near_thresholds import OBJECTIVES as NEAR
from tests.turns_near_thresholds import turns_near_thresholds
from tests.unit.telemetry.store.opened_stores import reader_of_runs

OBJECTIVES = [
    *default_objectives(),
    *(
        Objective(f"{name}-{threshold}", "metric", 0.9, name, threshold, cohort=cohort)
        for name in METRICS
        for threshold, cohort in ((300.0 * MS, None), (0.9, "streaming"), (520.0 * MS, None))
    ),
    Objective("outcomes", "outcome", 0.9, outcomes=("ok", "interrupted"), length_class="short"),
    Objective("answered", "fallback", 0.9, route="rule"),
    Objective("cached", "cache", 0.3, noise_profile="babble"),
]


def mixed_turns(seed: int) -> list[Turn]:
    """A run whose turns differ in all that the rule asks: cut, withheld, of unknown uncertainty, without a cohort."""
    dice = random.Random(seed)
    made: list[Turn] = []
    for turn in synthetic_run(turns=200, seed=seed).turns:
        changes: dict[str, object] = {"speech_end_uncertainty_ns": dice.choice((None, 0, 15 * MS, 40 * MS))}
        if dice.random() < 0.15:
            changes["outcome"] = dice.choice(("interrupted", "cut", "error", "no_reply"))
            changes["hangup_perf_ns"] = turn.started_perf_ns + dice.choice((2_400, 2_900, 3_400)) * MS
        if dice.random() < 0.1:
            changes |= {"first_audio_perf_ns": None, "asr_final_perf_ns": None}
        if dice.random() < 0.05:
            changes |= {"withheld_metrics": ("voice_to_voice",), "withheld_reasons": ("not on this wire",)}
        elif dice.random() < 0.1:
            changes |= {"first_audio_perf_ns": None, "contradicted_metrics": ("voice_to_voice",)}
        if dice.random() < 0.05:
            changes |= {"barge_in_end": "never_stopped", "barge_in_stop_ns": None}
        if dice.random() < 0.05:
            changes |= {"outcome": "interrupted", "first_audio_perf_ns": None, "failure_kind": "interrupted"}
        if dice.random() < 0.1:
            changes |= {"cohort": None}
        made.append(msgspec.structs.replace(turn, **changes))
    return made


@pytest.mark.slow
def test_one_pass_counts_objectives_and_cohorts_as_rule_does(tmp_path: Path) -> None:
    seen = mixed_turns(1)
    with reader_of_runs(tmp_path, Run(turns=seen)) as reader:
        counts = reader.objective_counts(Filter(run_id="run-1"), OBJECTIVES)
    assert set(counts.cohorts) == {"control", "streaming"}
    for cohort in (None, "control", "streaming"):
        mine = [turn for turn in seen if cohort is None or turn.cohort == cohort]
        counted, expected = counts if cohort is None else counts.of_cohort(cohort), count_turns(mine)
        for objective in OBJECTIVES:
            assert counted.count(objective) == expected(objective), (cohort, objective.name)


@pytest.mark.slow
def test_turns_with_bounds_across_threshold_are_kept_apart(tmp_path: Path) -> None:
    seen = turns_near_thresholds(1)
    with reader_of_runs(tmp_path, Run(turns=seen)) as reader:
        # One at a time: together they tell nearly every turn apart.
        counts = {
            objective.name: reader.objective_counts(Filter(run_id="run-1"), [objective]).count(objective)
            for objective in NEAR
        }
    expected = count_turns(seen)
    for objective in NEAR:
        assert counts[objective.name] == expected(objective), objective.name
    annotated = {objective.name for objective in NEAR if "speech bounds uncertain" in expected(objective).open}
    assert annotated >= {m.name for m in METRICS.values() if m.counts_from is not None} | {"talk_over", "slower"}
    assert all("generator" in expected(objective).open for objective in NEAR if objective.kind == "metric")


def judged_in_sql(seen: list[Turn], objectives: list[Objective], source: Source) -> list[list[Judgment | None]]:
    """Return by objective what the store's statement says of each turn of a source."""
    table = with_judgments(Condition("source = ?", (source,)), objectives, source)
    columns = ", ".join(column_of(place) for place in range(len(objectives)))
    with duckdb.connect() as connection:
        connection.register("sent", turns_table(seen))
        connection.execute("CREATE TABLE turns AS SELECT row_number() OVER () AS place, * FROM sent")
        rows = connection.execute(f"SELECT {columns} FROM {table.sql} ORDER BY place", table.values).fetchall()
    return [[None if code is None else JUDGMENTS[code] for code in of] for of in zip(*rows, strict=True)]


def judged_one_by_one(seen: list[Turn], objectives: list[Objective], source: Source) -> list[list[Judgment | None]]:
    mine = [turn for turn in seen if turn.source == source]
    rows: list[list[Judgment | None]] = []
    for objective in objectives:
        shown = {turn.run_id for turn in mine if has_value(objective, turn)}
        rows.append(
            [resolve(judge_turn(objective, turn, source), objective, has_value=turn.run_id in shown) for turn in mine]
        )
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("source", ["client", "service"])
@pytest.mark.parametrize("seed", [2, 3])
def test_each_turn_is_judged_by_the_rule(seed: int, source: Source) -> None:
    near = [msgspec.structs.replace(turn, source=source) for turn in turns_near_thresholds(seed)]
    mixed = [msgspec.structs.replace(turn, source=source) for turn in mixed_turns(seed)]
    for seen, objectives in ((near, NEAR), (mixed, OBJECTIVES)):
        assert judged_in_sql(seen, objectives, source) == judged_one_by_one(seen, objectives, source)


@st.composite
def _turns_and_objectives(draw: st.DrawFn) -> tuple[list[Turn], list[Objective]]:
    """Any turns, and objectives whose thresholds are values and bounds of theirs, or are close to them."""
    names = st.lists(st.sampled_from(list(METRICS)), max_size=2).map(tuple)
    seen = [
        msgspec.structs.replace(
            turn,
            run_id=draw(st.sampled_from(("a", "b"))),
            outcome=draw(st.sampled_from(OUTCOMES)),
            withheld_metrics=draw(names),
            contradicted_metrics=draw(names),
        )
        for turn in draw(st.lists(turns(), min_size=1, max_size=5))
    ]
    objectives = [Objective("answered", "outcome", 0.9, outcomes=("ok", "interrupted"))]
    objectives += [Objective("own", "fallback", 0.9), Objective("cached", "cache", 0.9, length_class="x")]
    for name, metric in METRICS.items():
        near = [0.0]
        for turn in seen:
            bounds = metric_bounds(turn, metric) or (), measured_bounds(turn, metric) or ()
            values = (metric.value(turn), *bounds[0], *bounds[1])
            near += [value for value in values if value is not None and math.isfinite(value)]
        threshold = draw(st.sampled_from(near)) + draw(st.sampled_from((0, 1, -1, 0.5)))
        objectives.append(Objective(name, "metric", 0.9, name, threshold, cohort=draw(st.sampled_from((None, "")))))
    return seen, objectives


@pytest.mark.slow
@settings(max_examples=examples(20, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(_turns_and_objectives(), st.sampled_from(("client", "service")))
def test_any_turns_are_judged_as_by_the_rule(drawn: tuple[list[Turn], list[Objective]], source: Source) -> None:
    seen, objectives = drawn
    if any(turn.source == source for turn in seen):
        assert judged_in_sql(seen, objectives, source) == judged_one_by_one(seen, objectives, source)


def test_an_objective_that_cannot_be_judged_is_refused(tmp_path: Path) -> None:
    with reader_of_runs(tmp_path, synthetic_run(turns=3)) as reader:
        for objective, sentence in (
            (Objective("odd", "metric", 0.9, "nonsense", 1.0), "objective odd: there is no metric 'nonsense'"),
            (Objective("odd", "metric", 0.9, "wer"), "objective odd has no metric or no threshold"),
        ):
            with pytest.raises(StoreError, match=sentence):
                reader.objective_counts(Filter(), [objective])


def test_a_cohort_without_a_turn_has_none_that_count(tmp_path: Path) -> None:
    with reader_of_runs(tmp_path, synthetic_run(turns=3)) as reader:
        counts = reader.objective_counts(Filter(), OBJECTIVES[:2])
        assert counts.of_cohort("nobody").count(OBJECTIVES[0]) == EligibleTurns(0, 0)
        assert reader.objective_counts(Filter(run_id="nobody"), OBJECTIVES[:1]).count(OBJECTIVES[0]) == EligibleTurns(
            0, 0
        )
        assert reader.objective_counts(Filter(), []).whole == {}


@pytest.mark.parametrize(
    "narrowed",
    [
        Filter(cohort="b"),
        Filter(run_id="run-1", cohort="b"),
        Filter(since_unix_ns=START_UNIX_NS + 20 * SECOND),
        Filter(),
    ],
)
def test_stage_seen_in_run_counts_as_missing_in_part_without_it(tmp_path: Path, narrowed: Filter) -> None:
    def turn(index: int) -> Turn:
        if index < 20:
            # A ramp shows what the wire does, too, and counts nowhere.
            return client_turn(index, cohort="a", asr_final_perf_ns=3_100 * MS, phase="up", phase_kind="ramp")
        return client_turn(index, cohort="b")

    transcribed = Objective("transcribed", "metric", 0.9, "asr_final_latency", 400.0 * MS)
    with reader_of_runs(tmp_path, Run([turn(i) for i in range(50)])) as reader:
        assert reader.count(narrowed)(transcribed) == EligibleTurns(0, 30)


def test_withheld_metric_gives_reason_by_cohort(tmp_path: Path) -> None:
    def seen(turn: Turn) -> Turn:
        if turn.cohort != "control":
            return turn
        return msgspec.structs.replace(turn, withheld_metrics=("voice_to_voice",), withheld_reasons=("no audio",))

    objective = Objective("fast", "metric", 0.9, "voice_to_voice", 800.0 * MS)
    with reader_of_runs(tmp_path, Run(turns=[seen(t) for t in synthetic_run(turns=60).turns])) as reader:
        counts = reader.objective_counts(Filter(), [objective])
    assert counts.whole["fast"].withheld is None
    assert counts.whole["fast"].turns.eligible > 0
    control = counts.cohorts["control"]["fast"]
    assert (control.turns, control.withheld) == (EligibleTurns(), "no audio")
    with pytest.raises(NotObservable, match="no audio"):
        counts.of_cohort("control").count(objective)


@pytest.mark.slow
def test_the_sampling_interval_of_each_share_is_by_call(tmp_path: Path) -> None:
    """The expected intervals are counted by hand: the turns of each call by the rule, those of a run together."""
    seen = [msgspec.structs.replace(turn, run_id="run-1") for turn in mixed_turns(3)]
    calls: dict[str, list[Turn]] = {}
    for turn in seen:
        calls.setdefault(turn.call_id, []).append(turn)
    objectives = [candidate for candidate in OBJECTIVES if not candidate.name.startswith(("wer", "jitter", "packet"))]
    with reader_of_runs(tmp_path, Run(turns=seen), wall_clock_ns=lambda: 2**61) as reader:
        evidence = reader.run_verdict(Filter(run_id="run-1"), objectives)
    known = 0
    for objective in objectives:
        # Whether a stage without a value is bad is asked of the whole run.
        of_run = count_turns(seen)(objective)
        shows = any(turn.source == "client" and has_value(objective, turn) for turn in seen)
        counts: list[tuple[int, int]] = []
        for some in calls.values():
            judged = [resolve(judge_turn(objective, turn), objective, has_value=shows) for turn in some]
            counts.append((judged.count(Judgment.GOOD), sum(judgment in DECIDED for judgment in judged)))
        good, decided = (np.array(column) for column in zip(*counts, strict=True))
        assert (good.sum(), decided.sum()) == (of_run.good, of_run.decided), objective.name
        expected = grouped_interval(good, decided)
        assert evidence.sampling.get(objective.name) == pytest.approx(expected), objective.name
        known += expected is not None
    assert known > 20


def test_turns_of_one_call_have_no_sampling_interval(tmp_path: Path) -> None:
    seen = [msgspec.structs.replace(client_turn(i, turn_index=i), call_id="one") for i in range(30)]
    fast = Objective("fast", "metric", 0.9, "voice_to_voice", 800.0 * MS)
    with reader_of_runs(tmp_path, Run(turns=seen), wall_clock_ns=lambda: 2**61) as reader:
        evidence = reader.run_verdict(Filter(run_id="run-1"), [fast])
        assert reader.run_verdict(Filter(run_id="run-1"), []).sampling == {}
    assert evidence.counts.count(fast) == EligibleTurns(30, 30)
    assert evidence.sampling == {}
