"""The page of cohorts, beside the gate's own checks over the same turns."""

from pathlib import Path

from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.rollout.checks import check_results
from telemetry.rollout.cohort_comparison import default_plan
from telemetry.store.reader import StoreReader
from telemetry.store.rollout_turns import question_of
from telemetry.store.views import ViewQuestion
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, client_turn, fill_store, synthetic_run

NOW = START_UNIX_NS + 10_000 * SECOND
RUN = synthetic_run(turns=240)


def latency(turn: Turn) -> int | float | None:
    return METRICS["voice_to_voice"].value(turn)


def test_two_cohorts_are_compared_by_the_gates_own_checks(tmp_path: Path) -> None:
    with StoreReader(fill_store(tmp_path, RUN), wall_clock_ns=lambda: NOW) as reader:
        found = reader.cohorts_page(ViewQuestion())
        plan = default_plan("control", "streaming")
        turns = reader.rollout_turns(question_of(plan, None))
    compared = found.comparison
    assert compared is not None
    assert (compared.control, compared.candidate) == ("control", "streaming")
    assert compared.checks == check_results(plan, turns.candidate, turns.control)
    for cohort in ("control", "streaming"):
        heard = [turn for turn in RUN.turns if turn.source == "client" and turn.cohort == cohort]
        heard = [turn for turn in heard if turn.outcome not in ("invalid", "cut")]
        values = [value for turn in heard if (value := latency(turn)) is not None]
        points = [point for point in compared.curves if point.cohort == cohort]
        assert (points[0].value_ns, points[-1].value_ns) == (min(values), max(values))
        for point in points:
            share = sum(value <= point.value_ns for value in values) / len(heard)
            assert abs(point.share - share) < 1e-9
        assert points[-1].share == len(values) / len(heard), "who was never answered is never within a time"


def test_one_cohort_is_not_compared(tmp_path: Path) -> None:
    of = Run(turns=[client_turn(index, cohort="only") for index in range(30)])
    with StoreReader(fill_store(tmp_path, of), wall_clock_ns=lambda: NOW) as reader:
        found = reader.cohorts_page(ViewQuestion())
    assert found.comparison is None
    assert found.others == ("only",)
    assert found.run is not None
