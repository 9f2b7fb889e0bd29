"""Error budgets over windows that end now, compared with counts that are taken turn by turn."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from telemetry.model.turns import Turn
from telemetry.objectives.error_budgets import DAY_NS, DEFAULT_BURN_RATES, SHOWN_WINDOWS, ErrorBudget, window_ns
from telemetry.objectives.judgment import judge_turn
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives, is_good
from telemetry.store.answers import Filter
from telemetry.store.questions.burn_rates import BurnRateAnswer
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import SECOND, Run, client_turn
from tests.unit.telemetry.store.opened_stores import reader_of_runs

NOW = 1_795_000_000 * SECOND
HOUR = 3600 * SECOND
FAST = Objective("fast", "metric", 0.9, "voice_to_voice", 800e6, display_name="Answers in time")
WELL = Objective("well", "outcome", 0.99, outcomes=("ok",))


def turns_of(seed: int = 3) -> list[Turn]:
    """Turns of the last 35 days, some of them late, some without a reply, some invalid, and a few of tomorrow."""
    rng = np.random.default_rng(seed)
    ages = [*rng.uniform(0, 35 * DAY_NS, 500), *rng.uniform(0, 8 * HOUR, 300), *rng.uniform(0, HOUR, 200), -HOUR]
    turns: list[Turn] = []
    for index, age in enumerate(ages):
        latency = None if rng.random() < 0.05 else float(rng.choice([500, 900], p=[0.85, 0.15]))
        turn = client_turn(index, voice_to_voice_ms=latency, started_unix_ns=NOW - int(age), cohort="ab"[index % 2])
        turns.append(msgspec.structs.replace(turn, outcome="invalid") if index % 31 == 0 else turn)
    return turns


TURNS = turns_of()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    with reader_of_runs(tmp_path_factory.mktemp("s"), Run(turns=TURNS), wall_clock_ns=lambda: NOW) as opened:
        yield opened


def counted(turns: Sequence[Turn], objective: Objective, since: int, until: int = NOW + 1) -> tuple[int, int, int]:
    """Good, eligible and bad turns: an invalid one is eligible, and open."""
    within = [turn for turn in turns if since <= turn.started_unix_ns < until]
    valid = [is_good(objective, turn) for turn in within if turn.outcome != "invalid"]
    invalid = [turn for turn in within if turn.outcome == "invalid" and judge_turn(objective, turn) is not None]
    good, bad = valid.count(True), valid.count(False)
    return good, good + bad + len(invalid), bad


def budget(answer: BurnRateAnswer, name: str) -> ErrorBudget:
    return next(candidate for candidate in answer.budgets if candidate.name == name)


def test_each_window_counts_the_turns_that_began_in_it(reader: StoreReader) -> None:
    objectives = [FAST, WELL, *default_objectives()]
    rates = reader.burn_rates(objectives)
    assert (rates.at_unix_ns, rates.source) == (NOW, "client")
    assert rates.newest_unix_ns == max(turn.started_unix_ns for turn in TURNS if turn.started_unix_ns <= NOW)
    for objective in objectives:
        of = budget(rates, objective.name)
        assert [shown.window for shown in of.windows] == list(SHOWN_WINDOWS)
        for window in of.windows:
            good, eligible, bad = counted(TURNS, objective, NOW - window_ns(window.window) + 1)
            assert (window.counts.good, window.counts.eligible) == (good, eligible), (objective.name, window.window)
            if eligible:
                assert window.burn_rate == pytest.approx(bad / eligible / (1 - objective.target))
        good, eligible, bad = counted(TURNS, objective, NOW - 28 * DAY_NS + 1)
        if eligible:
            assert of.budget_left == pytest.approx(1 - bad / eligible / (1 - objective.target))


def test_each_day_has_its_turns_and_what_was_left_at_its_end(reader: StoreReader) -> None:
    of = budget(reader.burn_rates([FAST]), "fast")
    assert [day.days_ago for day in of.days] == list(range(27, -1, -1))
    every = counted(TURNS, FAST, NOW - 28 * DAY_NS + 1)[1]
    for day in of.days:
        begin = NOW - (day.days_ago + 1) * DAY_NS + 1
        assert (day.counts.good, day.counts.eligible, day.counts.bad) == counted(TURNS, FAST, begin, begin + DAY_NS)
        bad = counted(TURNS, FAST, NOW - 28 * DAY_NS + 1, begin + DAY_NS)[2]
        assert day.budget_left == pytest.approx(1 - bad / (every * 0.1))
    assert of.days[-1].budget_left == of.budget_left


def test_a_cohort_has_budgets_of_its_own(reader: StoreReader) -> None:
    of = budget(reader.burn_rates([FAST], Filter(cohort="a", since_unix_ns=NOW)), "fast")
    mine = [turn for turn in TURNS if turn.cohort == "a"]
    counts = of.windows[-1].counts
    assert (counts.good, counts.eligible, counts.bad) == counted(mine, FAST, NOW - 28 * DAY_NS + 1)


def burning(folder: Path, bad_of_hour: float, turns: int = 2000, **changes: object) -> ErrorBudget:
    """The budget of 99 % good turns where in the last hour so many were bad, evenly, and none before."""
    sent: list[Turn] = []
    for index in range(turns):
        age = index * HOUR // turns
        is_bad = int((index + 1) * bad_of_hour) > int(index * bad_of_hour)
        sent.append(client_turn(index, voice_to_voice_ms=900 if is_bad else 500, started_unix_ns=NOW - age))
    of = replace(FAST, target=0.99, **changes)  # type: ignore[arg-type]
    with reader_of_runs(folder, Run(turns=sent), wall_clock_ns=lambda: NOW) as opened:
        return budget(opened.burn_rates([of]), "fast")


@pytest.mark.slow
def test_alerts_fire_beyond_their_factor_in_both_windows(tmp_path: Path) -> None:
    of = None
    for number, (bad, fires) in enumerate([(0.15, [True, True, True]), (0.08, [False, True, True])]):
        of = burning(tmp_path / str(number), bad)
        assert [(alert.factor, alert.fires) for alert in of.alerts] == list(zip((14.4, 6.0, 1.0), fires, strict=True))
        assert of.fires
    assert of is not None
    assert not burning(tmp_path / "at", 0.009).fires
    assert [(shown.long, shown.short) for shown in of.alerts] == [
        (rule.long, rule.short) for rule in DEFAULT_BURN_RATES
    ]


@pytest.mark.slow
def test_an_alert_needs_its_turns_and_ends_with_the_short_window(tmp_path: Path) -> None:
    few = burning(tmp_path / "few", 1.0, turns=20)
    assert [alert.fires for alert in few.alerts] == [None, None, None]
    assert few.is_met is None
    sent = [
        client_turn(index, voice_to_voice_ms=900 if index >= 1000 else 500, started_unix_ns=NOW - index * SECOND)
        for index in range(2000)
    ]
    with reader_of_runs(tmp_path / "over", Run(turns=sent), wall_clock_ns=lambda: NOW) as opened:
        over = budget(opened.burn_rates([replace(FAST, target=0.99)]), "fast")
    assert [alert.fires for alert in over.alerts] == [False, True, True]


def test_without_turns_nothing_is_healthy(tmp_path: Path) -> None:
    with reader_of_runs(tmp_path, Run(turns=[client_turn(0)]), wall_clock_ns=lambda: NOW) as opened:
        rates = opened.burn_rates([FAST, WELL])
    assert rates.newest_unix_ns is None
    for of in rates.budgets:
        assert (of.budget_left, of.is_met, of.fires) == (None, None, False)
        assert {window.burn_rate for window in of.windows} == {None}


def test_service_turns_count_if_there_are_no_callers(tmp_path: Path) -> None:
    own = [client_turn(index, source="service", started_unix_ns=NOW - index * SECOND) for index in range(30)]
    with reader_of_runs(tmp_path, Run(turns=own), wall_clock_ns=lambda: NOW) as opened:
        rates = opened.burn_rates([FAST])
    assert rates.source == "service"
    assert budget(rates, "fast").windows[0].counts.eligible == 30


def test_missed_ones_come_first(reader: StoreReader) -> None:
    lenient = replace(FAST, name="lenient", target=0.5)
    unknown = replace(FAST, name="unknown", cohort="nobody")
    names = [candidate.name for candidate in reader.burn_rates([unknown, lenient, FAST]).budgets]
    assert names == ["fast", "lenient", "unknown"]
