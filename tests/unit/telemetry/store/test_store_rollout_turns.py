"""A rollout's turns out of the store, compared with the turns themselves."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.model.generator_health import gauge_metric
from telemetry.model.metrics import METRICS
from telemetry.model.semconv import OUTCOMES
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import Judgment, judge_turn
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives, is_good
from telemetry.rollout.checks import check_results
from telemetry.rollout.cohort_turns import CohortTurns, missed_column, open_column
from telemetry.rollout.plan import Check
from telemetry.sidecar.queries import Asked, reply_to
from telemetry.store import wire
from telemetry.store.answers import Filter
from telemetry.store.questions.comparisons import REPORTED_COLUMNS
from telemetry.store.questions.rollouts import (
    RolloutQuestion,
    RolloutTurns,
    evidence_of,
    question_of,
)
from telemetry.store.reader import StoreReader
from telemetry.store.schema import PointRow
from tests.fixtures_turns import MS, SECOND, START_UNIX_NS, Run, client_turn, run_span, synthetic_run
from tests.rollout_cohorts import plan
from tests.turns_near_thresholds import turns_near_thresholds
from tests.unit.telemetry.store.opened_stores import reader_of_runs

RUN = synthetic_run(turns=240)
NOW = START_UNIX_NS + 10_000 * SECOND
ASKED = RolloutQuestion(
    "streaming",
    "control",
    metrics=("voice_to_voice", "wer"),
    reported=REPORTED_COLUMNS,
    slices=("noise_profile", "route", "region"),
    with_audio=True,
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    with reader_of_runs(tmp_path_factory.mktemp("store"), RUN, wall_clock_ns=lambda: NOW) as opened:
        yield opened


def turns_of(cohort: str) -> list[Turn]:
    return [turn for turn in RUN.turns if turn.source == "client" and turn.cohort == cohort]


def by_start(of: CohortTurns, column: np.ndarray) -> list[object]:
    """A column in an order that does not depend on the store's: sorted as text."""
    return sorted(map(str, column.tolist()))


@pytest.mark.parametrize("cohort", ["streaming", "control"])
def test_the_columns_are_those_of_the_turns(reader: StoreReader, cohort: str) -> None:
    evidence = reader.rollout_turns(ASKED)
    of = evidence.candidate if cohort == "streaming" else evidence.control
    turns = turns_of(cohort)
    assert (of.cohort, of.turns, of.calls) == (cohort, len(turns), len({turn.call_id for turn in turns}))
    assert of.first_unix_ns == min(turn.started_unix_ns for turn in turns)
    assert of.newest_unix_ns == max(turn.started_unix_ns for turn in turns)
    assert evidence.cohorts == ("control", "streaming")

    def expected(values: list[float | None]) -> list[str]:
        return sorted(str(float("nan") if value is None else float(value)) for value in values)

    for name in ("voice_to_voice", "wer"):
        column = of.number(name)
        assert column is not None
        assert by_start(of, column) == expected([METRICS[name].value(turn) for turn in turns])
    fallback = of.number("fallback")
    assert fallback is not None
    assert by_start(of, fallback) == expected(
        [1 if t.fallback is not None else 0 if t.route is not None else None for t in turns]
    )
    assert sorted(of.code("outcome").tolist()) == sorted(OUTCOMES.index(turn.outcome) for turn in turns)
    routes = [of.labels["route"][code] for code in of.code("route")]
    assert sorted(routes) == sorted(turn.route or "" for turn in turns)
    assert set(of.code("region").tolist()) == {-1}


@pytest.mark.parametrize("objective", default_objectives(), ids=lambda objective: objective.name)
def test_an_objective_is_judged_by_its_one_rule(reader: StoreReader, objective: Objective) -> None:
    evidence = reader.rollout_turns(replace(ASKED, objectives=(objective, *default_objectives()[:2])))
    for of in (evidence.candidate, evidence.control):
        column = of.number(missed_column(objective.name))
        assert column is not None
        verdicts = [is_good(objective, turn) for turn in turns_of(of.cohort)]
        expected = [float("nan") if verdict is None else float(not verdict) for verdict in verdicts]
        assert sorted(map(str, column.tolist())) == sorted(map(str, expected))


def test_the_same_audio_has_the_same_code_in_both_cohorts(reader: StoreReader) -> None:
    evidence = reader.rollout_turns(ASKED)
    heard = [
        len({(turn.utterance_id, turn.noise_profile) for turn in turns_of(cohort)})
        for cohort in ("streaming", "control")
    ]
    codes = [set(of.code("audio").tolist()) for of in (evidence.candidate, evidence.control)]
    assert [len(code) for code in codes] == heard
    common = {(t.utterance_id, t.noise_profile) for t in turns_of("streaming")} & {
        (t.utterance_id, t.noise_profile) for t in turns_of("control")
    }
    assert len(codes[0] & codes[1]) == len(common) > 0


def test_turns_belong_to_user_where_callers_are_assigned_by_user(tmp_path: Path) -> None:
    users = [f"pseudonym-{number:032x}" for number in range(4)]
    named = [
        client_turn(index, cohort="ab"[index % 2], user_id=None if index < 3 else users[index % 4])
        for index in range(40)
    ]
    asked = RolloutQuestion("a", "b", unit="user")
    with reader_of_runs(tmp_path, Run(turns=named), wall_clock_ns=lambda: NOW) as opened:
        by_user = opened.rollout_turns(asked)
        by_call = opened.rollout_turns(replace(asked, unit="call"))
    # Without a user, the call is the unit: turns 0 and 2 of the candidate, turn 1 of the control.
    assert (by_user.candidate.calls, by_user.control.calls) == (2 + 2, 2 + 1)
    assert (by_user.candidate.unnamed_turns, by_user.control.unnamed_turns) == (2, 1)
    assert (by_call.candidate.calls, by_call.candidate.unnamed_turns) == (20, None)
    assert not evidence_of(by_user).are_users_known


def test_bounds_are_wider_where_the_same_users_call_often(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    sessions: list[Turn] = []
    for user in range(120):
        own_ms = rng.normal(500, 120)  # a user's network and voice are the same in all calls
        for call in range(10):
            index = user * 10 + call
            value = max(50.0, own_ms + rng.normal(0, 20))
            user_id = f"pseudonym-{user:032x}"
            sessions.append(client_turn(index, voice_to_voice_ms=value, cohort="ab"[user % 2], user_id=user_id))
    median = replace(plan().primary, statistic="p50")
    of = replace(plan(), control="b", candidate="a", primary=median, guardrails=(), unit="user")
    widths: dict[str, float] = {}
    with reader_of_runs(tmp_path, Run(turns=sessions), wall_clock_ns=lambda: NOW) as opened:
        for unit in ("user", "call"):
            gathered = evidence_of(opened.rollout_turns(replace(question_of(of, None), unit=unit)))
            (result,) = check_results(of, gathered.candidate, gathered.control)
            assert result.lower is not None
            assert result.upper is not None
            widths[unit] = result.upper - result.lower
            assert gathered.are_users_known == (unit == "user")
    assert widths["user"] > 1.5 * widths["call"]


def test_only_what_is_asked_comes_back(reader: StoreReader) -> None:
    few = reader.rollout_turns(RolloutQuestion("streaming", "control", metrics=("voice_to_voice",)))
    assert set(few.candidate.numbers) == {"voice_to_voice"}
    assert set(few.candidate.codes) == {"outcome", "call"}
    since = START_UNIX_NS + 120 * SECOND
    late = reader.rollout_turns(replace(ASKED, filter=Filter(since_unix_ns=since)))
    assert late.candidate.first_unix_ns is not None
    assert late.candidate.first_unix_ns >= since
    assert late.telemetry_lost == 0.0
    nobody = reader.rollout_turns(RolloutQuestion("canary", "control"))
    assert (nobody.candidate.turns, nobody.candidate.calls, nobody.candidate.newest_unix_ns) == (0, 0, None)
    assert nobody.candidate.eligible_turns == 0
    services = reader.rollout_turns(replace(ASKED, source="service"))
    assert services.candidate.turns == len([t for t in RUN.turns if t.source == "service" and t.cohort == "streaming"])


def test_the_answer_travels(reader: StoreReader) -> None:
    here = reader.rollout_turns(ASKED)
    for is_msgpack, decode in ((True, msgspec.msgpack.decode), (False, msgspec.json.decode)):
        replied = reply_to(reader, Asked("rollout_turns", msgspec.json.encode({"asked": ASKED}), is_msgpack))
        there: RolloutTurns = decode(replied.body, type=wire.question_named("rollout_turns").type_of_answer)
        assert by_start(there.candidate, there.candidate.code("audio")) == by_start(
            here.candidate, here.candidate.code("audio")
        )
        assert (there.cohorts, there.telemetry_lost) == (here.cohorts, here.telemetry_lost)


@pytest.mark.parametrize(
    "changes", [{"metrics": ("speed",)}, {"reported": ("1; DROP TABLE turns",)}, {"slices": ("secret",)}]
)
def test_unknown_column_is_refused(reader: StoreReader, changes: dict[str, object]) -> None:
    with pytest.raises(StoreError, match="there is no"):
        reader.rollout_turns(replace(ASKED, **changes))  # type: ignore[arg-type]


def lost(folder: Path, turns: list[Turn], **changes: object) -> float | None:
    asked = replace(RolloutQuestion("a", "b"), **changes)  # type: ignore[arg-type]
    with reader_of_runs(folder, Run(turns=turns), wall_clock_ns=lambda: NOW) as reader:
        return reader.rollout_turns(asked).telemetry_lost


@pytest.mark.slow
def test_numbers_that_did_not_arrive_are_lost_telemetry(tmp_path: Path) -> None:
    turns = [client_turn(index, cohort="ab"[index % 2]) for index in range(10)]
    assert lost(tmp_path / "all", turns) == 0.0
    assert lost(tmp_path / "hole", [*turns[:4], *turns[5:]]) == 0.1
    # What another cohort's turns took of the numbers is not lost, nor what was lost before the stage began.
    other = [msgspec.structs.replace(turns[4], cohort="c") if turn is turns[4] else turn for turn in turns]
    assert lost(tmp_path / "other", other) == 0.0
    late = Filter(since_unix_ns=START_UNIX_NS + 5 * SECOND)
    assert lost(tmp_path / "before", [turns[0], *turns[5:]], filter=late) == 0.0
    unnumbered = [msgspec.structs.replace(turn, sequence=None) for turn in turns]
    assert lost(tmp_path / "unnumbered", unnumbered) is None


def test_turns_counted_as_sent_but_not_received_are_lost(tmp_path: Path) -> None:
    points = [p for p in RUN.points if p.attributes["process_id"].endswith("worker-0")]
    kept = [turn for turn in RUN.turns if turn.process_id.endswith("worker-0") and (turn.sequence or 0) < 60]
    with reader_of_runs(tmp_path, Run(kept, [], points), wall_clock_ns=lambda: NOW) as reader:
        evidence = reader.rollout_turns(RolloutQuestion("streaming", "control"))
    assert evidence.telemetry_lost == pytest.approx(60 / 120)


def emitted(process: str, counts: dict[int, int], run_id: str = "run-1") -> list[PointRow]:
    """The number of turns that a process reports as emitted for a run, by the second of the report."""
    return [
        PointRow(
            name=semconv.METRIC_TURNS_EMITTED,
            unix_ns=START_UNIX_NS + at_s * SECOND,
            value=float(count),
            attributes={"run_id": run_id, "process_id": process},
            scope_name=semconv.SCOPE,
        )
        for at_s, count in counts.items()
    ]


def numbered(process: str, *sequences: int, run_id: str = "run-1") -> list[Turn]:
    return [
        client_turn(at, cohort="ab"[at % 2], process_id=process, run_id=run_id, call_id=f"{process}-{at}")
        for at in sequences
    ]


@pytest.mark.parametrize(
    ("points", "missing"),
    [
        (emitted("silent", {4: 3, 30: 3}), 0),  # it emitted nothing since the stage began
        (emitted("silent", {4: 3, 30: 10}), 7),
        (emitted("silent", {30: 10}, "run-2"), 0),  # of a run that is not compared
        (emitted("worker-1", {4: 5, 30: 20}), 0),
        (emitted("worker-1", {4: 2, 30: 20}), 3),  # lost between the beginning of the stage and its first turn
        (emitted("worker-1", {30: 24}), 9),  # of which 5 before the first turn that is there
        ([*emitted("worker-1", {4: 5, 30: 12}), *emitted("worker-1", {4: 0, 30: 12}, "run-2")], 4),  # of any run
    ],
)
def test_turns_emitted_since_the_stage_began_are_due(points: list[PointRow], missing: int, tmp_path: Path) -> None:
    stage = replace(RolloutQuestion("a", "b"), filter=Filter(since_unix_ns=START_UNIX_NS + 5 * SECOND))
    run = Run(turns=numbered("worker-1", *range(5, 20)), points=points)
    with reader_of_runs(tmp_path, run, wall_clock_ns=lambda: NOW) as reader:
        assert reader.rollout_turns(stage).telemetry_lost == pytest.approx(missing / (15 + missing))


def dropped(run_id: str, counts: dict[int, int], kind: str = "hold") -> list[PointRow]:
    """The number of calls of a run that were due and never began, by the second of the report."""
    attributes = {"run_id": run_id, "process_id": "w", "phase": kind, "phase_kind": kind, "phase_begin_s": 0.0}
    return [
        PointRow(
            name=semconv.METRIC_GENERATOR_STARTS,
            unix_ns=START_UNIX_NS + at_s * SECOND,
            value=float(count),
            attributes={**attributes, "which": "dropped"},
            scope_name=semconv.SCOPE,
        )
        for at_s, count in counts.items()
    ]


def test_calls_that_never_began_count_for_their_runs_cohorts(tmp_path: Path) -> None:
    turns = [
        *(client_turn(at, cohort="ab"[at % 4 == 0], run_id="both") for at in range(8)),
        *(client_turn(at, cohort="a", run_id="of a", call_id=f"a-{at}") for at in range(8, 20)),
    ]
    points = [*dropped("both", {3: 8, 30: 12}), *dropped("of a", {30: 3}), *dropped("of a", {30: 9}, semconv.RAMP)]
    asked = RolloutQuestion("a", "b", metrics=("voice_to_voice",))
    with reader_of_runs(tmp_path, Run(turns=turns, points=points)) as reader:
        every = reader.rollout_turns(asked)
        since = reader.rollout_turns(replace(asked, filter=Filter(since_unix_ns=START_UNIX_NS + 4 * SECOND)))
        services = reader.rollout_turns(replace(asked, source="service"))
    assert (every.candidate.unbegun_turns, every.control.unbegun_turns) == (9 + 3, 3)
    # Of the run of both cohorts 4 came later, and of its turns 3 of a and 1 of b.
    assert (since.candidate.unbegun_turns, since.control.unbegun_turns) == (3 + 3, 1)
    assert (services.candidate.unbegun_turns, services.control.unbegun_turns) == (0, 0)


@pytest.mark.parametrize(
    ("ended", "now_s", "since_s", "calls"),
    [
        (False, 40, 0, 0),  # at work
        (True, 10_000, 0, 0),
        (False, 10_000, 0, 12),
        (False, 10_000, 25, 0),  # lost before the stage began
    ],
)
def test_calls_in_flight_of_lost_processes_lack_values(
    ended: bool, now_s: int, since_s: int, calls: int, tmp_path: Path
) -> None:
    turns = [
        *(client_turn(at, cohort="a", process_id="w") for at in range(10)),
        *(client_turn(at, cohort="a", process_id="still at work") for at in range(30, 40)),
        *(client_turn(at, cohort="b", run_id="of b") for at in range(40, 50)),
    ]
    names = {"run_id": "run-1", "process_id": "w"}
    points = [
        PointRow(gauge_metric("calls_in_flight"), START_UNIX_NS + at_s * SECOND, value, names)
        for at_s, value in ((10, 30.0), (20, 12.0))
    ]
    span = run_span("run-1", START_UNIX_NS + 20 * SECOND, "end" if ended else "start")
    spans = [replace(span, attributes={**span.attributes, "voice.run.process_id": "w"})]
    asked = RolloutQuestion("a", "b", filter=Filter(since_unix_ns=START_UNIX_NS + since_s * SECOND))
    now_unix_ns = START_UNIX_NS + now_s * SECOND
    with reader_of_runs(tmp_path, Run(turns, spans, points), wall_clock_ns=lambda: now_unix_ns) as reader:
        evidence = reader.rollout_turns(asked)
    assert (evidence.candidate.unbegun_turns, evidence.control.unbegun_turns) == (calls, 0)


def test_failed_calls_without_cohort_count_in_their_runs(tmp_path: Path) -> None:
    def nameless(index: int, **changes: object) -> Turn:
        return client_turn(index, voice_to_voice_ms=None, **changes)

    turns = [
        client_turn(0, cohort="a"),
        client_turn(1, cohort="b"),
        *(nameless(2), nameless(3, outcome="error")),
        nameless(4, call_id="call-0"),  # its call names a cohort
        nameless(5, cohort="c"),
        nameless(6, run_id="run-2"),  # nobody met a or b there
        nameless(7, outcome="invalid"),
        client_turn(8),
    ]
    with reader_of_runs(tmp_path, Run(turns=turns)) as reader:
        evidence = reader.rollout_turns(RolloutQuestion("a", "b"))
    assert evidence.unassigned_turns == 2
    assert evidence_of(evidence).unassigned_turns == 2


def test_a_call_is_its_cohorts_whenever_a_turn_names_it(tmp_path: Path) -> None:
    def failed(index: int, call: int) -> Turn:
        return client_turn(index, voice_to_voice_ms=None, call_id=f"call-{call}")

    turns = [
        *(client_turn(index, cohort=name) for index, name in enumerate("abcc")),
        *(client_turn(index, cohort=name) for index, name in ((10, "a"), (11, "b"))),
        # Those after the stage began at 5: one of a, two of b, three of c, and four of calls that never named one.
        *(failed(20 + index, call) for index, call in enumerate([0, 1, 1, 2, 2, 3, *range(30, 34)])),
    ]
    stage = RolloutQuestion("a", "b", filter=Filter(since_unix_ns=START_UNIX_NS + 5 * SECOND))
    with reader_of_runs(tmp_path, Run(turns=turns)) as reader:
        evidence = reader.rollout_turns(stage)
    assert (evidence.candidate.turns, evidence.control.turns) == (1, 1)
    assert (evidence.candidate.nameless_turns, evidence.control.nameless_turns) == (1, 2)
    assert evidence.unassigned_turns == 4


def test_a_plan_asks_for_what_its_checks_read(reader: StoreReader) -> None:
    of = replace(
        plan(),
        control="control",
        guardrails=(
            Check("wer", "wer", 0.1),
            Check("cost_per_turn", "cost_per_turn", 0.1, price_per_token=1.0),
            Check("endpointing p95", "quantile", 1.0, "endpointing"),
            Check("objective", "objective", 0.02, objective=default_objectives()[1].name),
        ),
        slices=("route",),
    )
    asked = question_of(of, START_UNIX_NS, default_objectives())
    assert asked.objectives == (default_objectives()[1],)
    assert asked.metrics == ("voice_to_voice", "endpointing")
    assert asked.reported == ("wer_errors", "wer_reference_words", "llm_tokens")
    assert (asked.slices, asked.with_audio, asked.filter.since_unix_ns) == (("route",), False, START_UNIX_NS)
    evidence = reader.rollout_turns(asked)
    assert evidence_of(evidence, [of]).other_plans == (of,)
    assert evidence_of(evidence).candidate is evidence.candidate


def test_good_turns_follow_rule_and_open_ones_are_kept_apart(tmp_path: Path) -> None:
    """Two cohorts of turns whose bounds lie on different sides of the check's threshold, cut ones among them."""
    seen = [
        msgspec.structs.replace(turn, cohort=("streaming", "control")[number % 2])
        for number, turn in enumerate(turns_near_thresholds(3))
    ]
    check = Check("good_turns", "good_turns", 0.02, within=620.0 * MS)
    of = plan(guardrails=(check,), candidate="streaming", control="control")
    with reader_of_runs(tmp_path, Run(turns=seen), wall_clock_ns=lambda: NOW) as opened:
        evidence = opened.rollout_turns(question_of(of, None))
    rule = Objective("good", "metric", 0.5, "voice_to_voice", 620.0 * MS)
    for cohort in (evidence.candidate, evidence.control):
        judged = [judge_turn(rule, turn) for turn in seen if turn.cohort == cohort.cohort]
        decided = {Judgment.GOOD: 0, Judgment.BAD: 1}
        missed = cohort.number(missed_column(check.counted_by or ""))
        opened_turns = cohort.number(open_column(check.counted_by or ""))
        assert missed is not None
        assert opened_turns is not None
        assert {Judgment.GENERATOR, Judgment.SPEECH, Judgment.CUT, *decided} <= set(judged)
        assert np.nansum(missed) == judged.count(Judgment.BAD)
        assert np.count_nonzero(missed == 0) == judged.count(Judgment.GOOD)
        assert opened_turns.sum() == sum(judgment is not None and judgment not in decided for judgment in judged)
