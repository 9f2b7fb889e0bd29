"""A line for each cohort: its percentile over rolling windows as numpy has it, and a gap where turns are too few."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from telemetry.store.answers import Filter
from telemetry.store.questions.pages import PageQuestion
from telemetry.store.questions.timelines import MOST_DOTS, MOST_LINES, WINDOW_STEPS, CohortLines
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, client_turn, fill_store, synthetic_run


def turns(count: int = 900, cohorts: tuple[str | None, ...] = ("candidate", "control")) -> Run:
    chance = np.random.default_rng(3)
    return Run([
        client_turn(index, voice_to_voice_ms=float(chance.lognormal(6, 0.4)), cohort=cohorts[index % len(cohorts)])
        for index in range(count)
    ])  # fmt: skip


def lines(store: Path, metric: str = "voice_to_voice") -> CohortLines:
    with StoreReader(store) as reader:
        answer = reader.page(PageQuestion(Filter("run-1"), metric=metric))
    assert answer.lines is not None
    return answer.lines


def _values(run: Run, cohort: str | None, since_unix_ns: int, until_unix_ns: int) -> list[int]:
    return [
        turn.first_audio_perf_ns - turn.speech_end_perf_ns
        for turn in run.turns
        if turn.cohort == cohort and since_unix_ns <= turn.started_unix_ns < until_unix_ns
        and turn.first_audio_perf_ns is not None and turn.speech_end_perf_ns is not None
    ]  # fmt: skip


def test_every_point_is_the_percentile_of_its_window(tmp_path: Path) -> None:
    run = turns()
    answer = lines(fill_store(tmp_path / "store", run))
    assert [line.cohort for line in answer.lines] == ["candidate", "control"]
    assert answer.window_ns // WINDOW_STEPS % SECOND == 0
    for line in answer.lines:
        assert len(line.points) > 10
        for point in line.points:
            values = _values(run, line.cohort, point.end_unix_ns - answer.window_ns, point.end_unix_ns)
            assert point.n == len(values)
            assert point.value == (pytest.approx(np.quantile(values, 0.95)) if len(values) >= 20 else None)
    whole = [point for line in answer.lines for point in line.points if point.value is not None]
    assert len(whole) > 0.9 * sum(len(line.points) for line in answer.lines)


def test_a_stretch_of_too_few_turns_is_a_gap(tmp_path: Path) -> None:
    run = turns(1200, (None,))
    silent = range(400, 800)
    kept = Run([turn for index, turn in enumerate(run.turns) if index not in silent or index % 40 == 0])
    (line,) = lines(fill_store(tmp_path / "store", kept)).lines
    values = [point.value for point in line.points]
    assert line.cohort is None
    assert values[0] is not None
    assert None in values
    assert values[-1] is not None
    assert all(point.n < 20 for point in line.points if point.value is None)


def test_only_largest_of_many_cohorts_have_a_line(tmp_path: Path) -> None:
    names = tuple(f"<b>{number}" for number in range(9))
    answer = lines(fill_store(tmp_path / "store", turns(900, names)))
    assert (len(answer.lines), answer.left_out) == (MOST_LINES, 9 - MOST_LINES)


@pytest.mark.parametrize(("count", "dots"), [(MOST_DOTS, MOST_DOTS), (MOST_DOTS + 1, 0)])
def test_few_turns_are_dots_at_which_they_began(tmp_path: Path, count: int, dots: int) -> None:
    run = turns(count)
    answer = lines(fill_store(tmp_path / "store", run))
    assert len(answer.dots) == dots
    began = [turn.started_unix_ns for turn in run.turns]
    values = [_values(run, turn.cohort, turn.started_unix_ns, turn.started_unix_ns + 1) for turn in run.turns]
    expected = [(start, float(value)) for start, (value,) in zip(began, values, strict=True)][:dots]
    assert [(dot.started_unix_ns, dot.value) for dot in answer.dots] == expected


@pytest.mark.slow
def test_few_turns_give_one_window_without_value(tmp_path: Path) -> None:
    answer = lines(fill_store(tmp_path / "store", turns(1)))
    assert [point.value for line in answer.lines for point in line.points] == [None]
    empty = lines(fill_store(tmp_path / "other", Run([msgspec.structs.replace(client_turn(), outcome="invalid")])))
    assert empty.lines == ()


@pytest.mark.slow
def test_load_shares_the_axis_and_other_metric_has_own_lines(tmp_path: Path) -> None:
    store = fill_store(tmp_path / "store", synthetic_run("run-1", turns=300))
    answer = lines(store)
    assert answer.load[0].start_unix_ns <= START_UNIX_NS
    assert any(point.calls for point in answer.load)
    last = max(point.end_unix_ns for line in answer.lines for point in line.points)
    assert last - answer.load[-1].start_unix_ns == answer.window_ns // WINDOW_STEPS
    other = lines(store, "llm_ttft")
    assert other.metric == "llm_ttft"
    assert any(point.value for line in other.lines for point in line.points)
