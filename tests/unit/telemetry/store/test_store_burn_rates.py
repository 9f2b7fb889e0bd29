"""Error budgets over windows that end now, beside counts that are taken turn by turn."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from telemetry.model.turns import Turn
from telemetry.objectives.burn_rates import DEFAULT_BURN_RATES
from telemetry.objectives.error_budgets import DAY_NS, SHOWN_WINDOWS, ErrorBudget, window_ns
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives, is_good
from telemetry.sidecar.query_messages import Asked
from telemetry.sidecar.query_process import reply_to
from telemetry.store import period_turns
from telemetry.store.answers import Filter
from telemetry.store.burn_rates import BurnRateAnswer
from telemetry.store.questions import QUESTIONS
from telemetry.store.reader import StoreReader
from telemetry.store.rollups import stretches
from telemetry.store.rollups.objectives import count_objectives
from telemetry.store.rollups.stretches import CountedPieces, StretchCounts, count_stretches
from telemetry.store.snapshot import GaveWayError
from tests.fixtures_turns import SECOND, Run, client_turn, fill_store
from tests.unit.telemetry.store.rollups.answers_compared import stored

NOW = 1_795_000_000 * SECOND
HOUR = 3600 * SECOND
FAST = Objective("fast", "metric", 0.9, "voice_to_voice", 800e6, display_name="Answers in time")
WELL = Objective("well", "outcome", 0.99, outcomes=("ok",))


def turns_of(seed: int = 3) -> list[Turn]:
    """Turns of the last 35 days, some of them late, some without a reply, some invalid, and a few of tomorrow."""
    rng = np.random.default_rng(seed)
    ages = [*rng.uniform(0, 35 * DAY_NS, 500), *rng.uniform(0, 8 * HOUR, 300), *rng.uniform(0, HOUR, 200), -HOUR]
    found: list[Turn] = []
    for index, age in enumerate(ages):
        latency = None if rng.random() < 0.05 else float(rng.choice([500, 900], p=[0.85, 0.15]))
        turn = client_turn(index, voice_to_voice_ms=latency, started_unix_ns=NOW - int(age), cohort="ab"[index % 2])
        found.append(msgspec.structs.replace(turn, outcome="invalid") if index % 31 == 0 else turn)
    return found


TURNS = turns_of()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    with StoreReader(fill_store(tmp_path_factory.mktemp("s"), Run(turns=TURNS)), wall_clock_ns=lambda: NOW) as opened:
        yield opened


def counted(turns: Sequence[Turn], objective: Objective, since: int, until: int = NOW + 1) -> tuple[int, int]:
    verdicts = [
        is_good(objective, turn)
        for turn in turns
        if since <= turn.started_unix_ns < until and turn.outcome != "invalid"
    ]
    return verdicts.count(True), len(verdicts) - verdicts.count(None)


def budget(answer: BurnRateAnswer, name: str) -> ErrorBudget:
    return next(each for each in answer.budgets if each.name == name)


def test_each_window_counts_the_turns_that_began_in_it(reader: StoreReader) -> None:
    objectives = [FAST, WELL, *default_objectives()]
    found = reader.burn_rates(objectives)
    assert (found.at_unix_ns, found.source) == (NOW, "client")
    assert found.newest_unix_ns == max(turn.started_unix_ns for turn in TURNS if turn.started_unix_ns <= NOW)
    for objective in objectives:
        of = budget(found, objective.name)
        assert [each.window for each in of.windows] == list(SHOWN_WINDOWS)
        for window in of.windows:
            good, eligible = counted(TURNS, objective, NOW - window_ns(window.window) + 1)
            assert (window.counts.good, window.counts.eligible) == (good, eligible), (objective.name, window.window)
            if eligible:
                assert window.burn_rate == pytest.approx((1 - good / eligible) / (1 - objective.target))
        good, eligible = counted(TURNS, objective, NOW - 28 * DAY_NS + 1)
        if eligible:
            assert of.budget_left == pytest.approx(1 - (eligible - good) / eligible / (1 - objective.target))


def test_each_day_has_its_turns_and_what_was_left_at_its_end(reader: StoreReader) -> None:
    of = budget(reader.burn_rates([FAST]), "fast")
    assert [day.days_ago for day in of.days] == list(range(27, -1, -1))
    every = counted(TURNS, FAST, NOW - 28 * DAY_NS + 1)[1]
    for day in of.days:
        begin = NOW - (day.days_ago + 1) * DAY_NS + 1
        assert (day.counts.good, day.counts.eligible) == counted(TURNS, FAST, begin, begin + DAY_NS)
        good, eligible = counted(TURNS, FAST, NOW - 28 * DAY_NS + 1, begin + DAY_NS)
        assert day.budget_left == pytest.approx(1 - (eligible - good) / (every * 0.1))
    assert of.days[-1].budget_left == of.budget_left


def test_a_cohort_has_budgets_of_its_own(reader: StoreReader) -> None:
    of = budget(reader.burn_rates([FAST], Filter(cohort="a", since_unix_ns=NOW)), "fast")
    mine = [turn for turn in TURNS if turn.cohort == "a"]
    counts = of.windows[-1].counts
    assert (counts.good, counts.eligible) == counted(mine, FAST, NOW - 28 * DAY_NS + 1)


def burning(folder: Path, bad_of_hour: float, turns: int = 2000, **changes: object) -> ErrorBudget:
    """The budget of 99 % good turns where in the last hour so many were bad, evenly, and none before."""
    sent: list[Turn] = []
    for index in range(turns):
        age = index * HOUR // turns
        is_bad = int((index + 1) * bad_of_hour) > int(index * bad_of_hour)
        sent.append(client_turn(index, voice_to_voice_ms=900 if is_bad else 500, started_unix_ns=NOW - age))
    of = replace(FAST, target=0.99, **changes)  # type: ignore[arg-type]
    with StoreReader(fill_store(folder, Run(turns=sent)), wall_clock_ns=lambda: NOW) as opened:
        return budget(opened.burn_rates([of]), "fast")


def test_alerts_fire_beyond_their_factor_in_both_windows(tmp_path: Path) -> None:
    of = None
    for number, (bad, fires) in enumerate([(0.15, [True, True, True]), (0.08, [False, True, True])]):
        of = burning(tmp_path / str(number), bad)
        assert [(alert.factor, alert.fires) for alert in of.alerts] == list(zip((14.4, 6.0, 1.0), fires, strict=True))
        assert of.fires
    assert of is not None
    assert not burning(tmp_path / "at", 0.009).fires
    assert [(each.long, each.short) for each in of.alerts] == [(each.long, each.short) for each in DEFAULT_BURN_RATES]


def test_an_alert_needs_its_turns_and_ends_with_the_short_window(tmp_path: Path) -> None:
    few = burning(tmp_path / "few", 1.0, turns=20)
    assert [alert.fires for alert in few.alerts] == [None, None, None]
    assert few.is_met is None
    sent = [
        client_turn(index, voice_to_voice_ms=900 if index >= 1000 else 500, started_unix_ns=NOW - index * SECOND)
        for index in range(2000)
    ]
    with StoreReader(fill_store(tmp_path / "over", Run(turns=sent)), wall_clock_ns=lambda: NOW) as opened:
        over = budget(opened.burn_rates([replace(FAST, target=0.99)]), "fast")
    assert [alert.fires for alert in over.alerts] == [False, True, True]


def test_without_turns_nothing_is_healthy(tmp_path: Path) -> None:
    with StoreReader(fill_store(tmp_path, Run(turns=[client_turn(0)])), wall_clock_ns=lambda: NOW) as opened:
        found = opened.burn_rates([FAST, WELL])
    assert found.newest_unix_ns is None
    for of in found.budgets:
        assert (of.budget_left, of.is_met, of.fires) == (None, None, False)
        assert {window.burn_rate for window in of.windows} == {None}


def test_turns_of_a_service_count_where_nobody_called(tmp_path: Path) -> None:
    own = [client_turn(index, source="service", started_unix_ns=NOW - index * SECOND) for index in range(30)]
    with StoreReader(fill_store(tmp_path, Run(turns=own)), wall_clock_ns=lambda: NOW) as opened:
        found = opened.burn_rates([FAST])
    assert found.source == "service"
    assert budget(found, "fast").windows[0].counts.eligible == 30


def test_missed_ones_come_first(reader: StoreReader) -> None:
    lenient = replace(FAST, name="lenient", target=0.5)
    unknown = replace(FAST, name="unknown", cohort="nobody")
    names = [each.name for each in reader.burn_rates([unknown, lenient, FAST]).budgets]
    assert names == ["fast", "lenient", "unknown"]


def test_the_answer_travels(reader: StoreReader) -> None:
    here = reader.burn_rates([FAST])
    asked = Asked("burn_rates", msgspec.json.encode({"objectives": [FAST]}), True)
    there = msgspec.msgpack.decode(reply_to(reader, asked).body, type=QUESTIONS["burn_rates"].answer)
    assert there == here


@pytest.mark.slow
@pytest.mark.parametrize("f", [Filter(), Filter(cohort="a"), Filter(noise_profile="none")], ids=str)
def test_roll_ups_count_what_the_turns_do(
    tmp_path: Path, reader: StoreReader, f: Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a store of merged segments with roll-ups in slots of a few turns, and of some without a roll-up."""
    found: list[StretchCounts] = []

    def spied(*given: Any, **named: Any) -> StretchCounts:
        found.append(count_stretches(*given, **named))
        return found[-1]

    monkeypatch.setattr(period_turns, "count_stretches", spied)
    folder = stored(tmp_path, sorted(TURNS, key=lambda turn: turn.started_unix_ns), segments=12, compacted=10)
    objectives = [FAST, WELL, *default_objectives()]
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as rolled:
        assert rolled.burn_rates(objectives, f) == reader.burn_rates(objectives, f)
    if f.noise_profile is None:
        assert any(each.eligible for each in found[0].counts["fast"].values())
        assert found[0].left_over
        assert found[0].unread


@pytest.mark.slow
def test_what_was_counted_before_giving_way_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, counted = list[tuple[Any, Any]](), list[object]()

    def spied(*given: Any, **named: Any) -> StretchCounts:
        asked.append((given, named))
        return count_stretches(*given, **named)

    count = stretches._counted  # pyright: ignore[reportPrivateUsage] - how often it is called is what is tested

    def counting(*given: Any) -> Any:
        counted.append(given)
        return count(*given)

    monkeypatch.setattr(period_turns, "count_stretches", spied)
    monkeypatch.setattr(stretches, "_counted", counting)
    folder = stored(tmp_path, sorted(TURNS, key=lambda turn: turn.started_unix_ns), segments=12, compacted=12)
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as rolled:
        rolled.burn_rates([FAST])
        (given, named), pieces = asked[0], len(counted)
        assert pieces > 2
        named |= {"kept": CountedPieces()}
        counted.clear()
        looks = iter([None, None, GaveWayError()])

        def give_way() -> None:
            if (error := next(looks, None)) is not None:
                raise error

        with pytest.raises(GaveWayError):
            count_stretches(*given, **named | {"give_way": give_way})
        assert len(counted) == 2
        count_stretches(*given, **named)
        assert len(counted) == pieces


@pytest.mark.slow
def test_counts_of_pieces_that_are_kept_are_those_of_the_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reader asks at several moments while turns come in, another one asks each time for the first time."""
    now, counted_anew = [NOW - HOUR], list[int]()

    def spied(*given: Any) -> Any:
        counted_anew[-1] += 1
        return count_objectives(*given)

    monkeypatch.setattr(stretches, "count_objectives", spied)
    ordered = sorted(TURNS, key=lambda turn: turn.started_unix_ns)
    folder = stored(tmp_path / "rolled", ordered[:-200], segments=12, compacted=10)
    objectives = [FAST, WELL, *default_objectives()]
    with StoreReader(folder, wall_clock_ns=lambda: now[-1]) as keeping:
        for number, later in enumerate((0, 1, 30 * SECOND, HOUR, DAY_NS, DAY_NS + 1)):
            now.append(NOW - HOUR + later)
            fill_store(folder, Run(turns=ordered[len(ordered) - 200 + number * 20 :][:20]))
            counted_anew.append(0)
            for f in (Filter(), Filter(cohort="a")):
                found = keeping.burn_rates(objectives, f)
                with StoreReader(folder, wall_clock_ns=lambda: now[-1]) as asked_once:
                    monkeypatch.setattr(stretches, "count_objectives", count_objectives)
                    assert found == asked_once.burn_rates(objectives, f), later
                    monkeypatch.setattr(stretches, "count_objectives", spied)
            fast = budget(keeping.burn_rates([FAST]), "fast").windows[-1].counts
            every = [*ordered[:-200], *ordered[len(ordered) - 200 :][: (number + 1) * 20]]
            assert (fast.good, fast.eligible) == counted(every, FAST, now[-1] - 28 * DAY_NS + 1, now[-1] + 1)
    assert counted_anew[0] > 10
    assert counted_anew[1] < counted_anew[0] / 2
