"""Open arrivals: the schedule is decided by seed and phases alone, and every call that was due is accounted for."""

import itertools
import math
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.scenario.arrivals import LATE_START_NS, Due, Ledger, Share, schedule, unending
from loadtest.scenario.phases import Arrival, Phase
from loadtest.swarm.open_calls import share_of_limit

SECOND = 1_000_000_000


def _phase(begin_s: float, duration_s: float, level: float, to: float | None = None, arrival: Arrival = "constant"):
    name = f"{begin_s}-{duration_s}"
    return Phase(name, "hold", begin_s, duration_s, "rate", level, level if to is None else to, arrival)


def _seconds(phases: Sequence[Phase], seed: int = 1) -> list[float]:
    return [due.at_ns / SECOND for due in schedule(phases, seed)]


def test_constant_arrivals_are_exact() -> None:
    assert _seconds([_phase(0, 4, 2.5)]) == pytest.approx([0.4 * n for n in range(10)])


def test_ramp_of_rate_gives_calls_by_its_area_ever_closer() -> None:
    seconds = _seconds([_phase(0, 10, 0, 4)])
    assert len(seconds) == 20
    # The n-th call comes when t² · 4 / 20 = n.
    assert seconds == pytest.approx([math.sqrt(5 * n) for n in range(20)])
    down = _seconds([_phase(0, 10, 4, 0)])
    assert [10 - at for at in reversed(down)] == pytest.approx([math.sqrt(5 * n) for n in range(1, 21)])


def test_phases_of_a_slow_rate_do_not_each_begin_with_a_call() -> None:
    slow = [_phase(2 * n, 2, 0.25) for n in range(10)]
    assert _seconds(slow) == pytest.approx([0, 4, 8, 12, 16]), "a call every four seconds, as in one phase of 20 s"


def test_poisson_arrivals_have_the_gaps_of_their_distribution() -> None:
    seconds = _seconds([_phase(0, 2000, 2.5, arrival="poisson")], seed=7)
    gaps = [later - earlier for earlier, later in itertools.pairwise(seconds)]
    # 5,000 gaps: mean and deviation are both 1 / rate, each to within some five standard errors.
    assert len(seconds) == pytest.approx(5000, abs=5 * math.sqrt(5000))
    assert statistics.fmean(gaps) == pytest.approx(0.4, rel=0.07)
    assert statistics.stdev(gaps) == pytest.approx(0.4, rel=0.07)
    assert sum(gap > 0.4 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.035)
    # Counts of equal stretches vary as much as their mean.
    counts = [sum(20 * n <= at < 20 * (n + 1) for at in seconds) for n in range(100)]
    assert statistics.variance(counts) / statistics.fmean(counts) == pytest.approx(1.0, abs=0.6)


def test_the_seed_decides() -> None:
    phases = [_phase(0, 100, 1, arrival="poisson")]
    assert _seconds(phases, 1) == _seconds(phases, 1) != _seconds(phases, 2)


def test_a_run_without_phases_has_a_schedule_without_an_end() -> None:
    first = list(itertools.islice(schedule([unending("constant", 100.0)], 1), 1000))
    assert [due.at_ns for due in first] == [n * SECOND // 100 for n in range(1000)]
    assert {due.phase.name for due in first} == {"steady"}


RATES = st.floats(0, 20, allow_nan=False)
PHASES = st.lists(
    st.tuples(st.floats(0.5, 20), RATES, RATES, st.sampled_from(["constant", "poisson"])), min_size=1, max_size=5
)


@settings(max_examples=60, deadline=None)
@given(parts=PHASES, seed=st.integers(0, 1000), workers=st.integers(1, 7))
def test_n_processes_begin_the_calls_of_one(
    parts: list[tuple[float, float, float, Arrival]], seed: int, workers: int
) -> None:
    phases: list[Phase] = []
    for duration_s, begin, end, arrival in parts:
        phases.append(_phase(phases[-1].end_s if phases else 0.0, duration_s, begin, end, arrival))
    whole = list(schedule(phases, seed))
    shares = [Share(index, workers) for index in range(workers)]
    dealt = [[due for due in schedule(phases, seed) if due.number % s.of == s.index] for s in shares]
    assert sorted(itertools.chain(*dealt), key=lambda due: due.number) == whole
    assert [due.number for due in whole] == list(range(len(whole)))
    moments = [due.at_ns for due in whole]
    assert moments == sorted(moments)
    for due in whole:
        assert due.phase.begin_s * SECOND - 1 <= due.at_ns <= due.phase.end_s * SECOND + 1


def _due(number: int, phase: Phase) -> Due:
    return Due(number, number * SECOND, phase)


def test_every_call_that_was_due_is_counted_as_begun_or_missed() -> None:
    few, many = _phase(0, 10, 1), _phase(10, 10, 9)
    ledger = Ledger([few, many], most_calls=2)
    assert ledger.may_begin(_due(0, few), calls_under_way=1)
    ledger.began(_due(0, few), late_ns=LATE_START_NS)
    assert ledger.may_begin(_due(1, many), calls_under_way=0)
    ledger.began(_due(1, many), late_ns=LATE_START_NS + 1)
    assert not ledger.may_begin(_due(2, many), calls_under_way=2)
    counts = ledger.until(run_s=12)
    assert [(s.planned, s.started, s.late, s.dropped) for s in counts.values()] == [(1, 1, 0, 0), (2, 1, 1, 1)]
    assert list(ledger.until(run_s=9.9)) == [few], "a phase that has not begun has no counts"


@pytest.mark.parametrize(("most", "workers", "parts"), [(10, 1, [10]), (10, 3, [4, 3, 3]), (1, 2, [1, 1])])
def test_a_limit_of_the_run_is_shared_out(most: int, workers: int, parts: list[int]) -> None:
    assert [share_of_limit(most, Share(index, workers)) for index in range(workers)] == parts
