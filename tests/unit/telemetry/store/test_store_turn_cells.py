"""Objectives of turns that roll-ups do not tell apart: from cells that are read once, beside counts turn by turn."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from telemetry.model.turns import Turn
from telemetry.objectives.error_budgets import DAY_NS, SHORT_WINDOWS, SHOWN_WINDOWS, window_ns
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives, is_good
from telemetry.store import cell_reading, period_turns, row_groups
from telemetry.store.answers import Filter
from telemetry.store.burn_rates import BurnRateAnswer
from telemetry.store.reader import StoreReader
from telemetry.store.rollups import stretches
from telemetry.store.snapshot import GaveWayError
from telemetry.store.turn_cells import CellsOfTurns, TurnCells
from telemetry.store.turns_of_runs import CountedTurns
from tests.fixtures_turns import MS, SECOND, Run, client_turn, fill_store
from tests.unit.telemetry.store.rollups.answers_compared import stored

NOW = 1_795_000_000 * SECOND
HOUR = 3600 * SECOND
PERIOD_NS = 28 * DAY_NS
ODD = Objective("odd", "metric", 0.9, "voice_to_voice", 612_345_678.0)
CLEAN = Objective("clean", "metric", 0.9, "voice_to_voice", 800e6, noise_profile="clean")
OBJECTIVES = [ODD, CLEAN, *default_objectives()]
# Of no run, of one, of values together, of no turn, and of all turns, which no roll-up tells for objective ODD.
FILTERS = (
    Filter(),
    Filter(noise_profile="clean"),
    Filter(run_id="one", noise_profile="babble", length_class="long"),
    Filter(cohort="a", route="cache", target="ws://there"),
    Filter(channel_profile="phone"),
    Filter(cohort="b"),
    Filter(noise_profile=""),
    Filter(noise_profile="nobody's"),
    Filter(phase="up"),
    Filter(route="cloud", phase="main"),
)
ASKED = ("run_id", "cohort", "target", "noise_profile", "length_class", "channel_profile", "route", "phase")


def turns_of(source: str, seed: int = 11, turns: int = 1500) -> list[Turn]:
    """Turns of the last 35 days, most of them of the last hours, and a few that are still to come."""
    dice = Random(seed)
    found: list[Turn] = []
    for index in range(turns):
        age = dice.choice((35 * DAY_NS, 3 * DAY_NS, 8 * HOUR, HOUR, 600 * SECOND)) * dice.random()
        phase = dice.choice(("up", "main", None))
        turn = client_turn(
            index,
            voice_to_voice_ms=dice.choice((500.0, 612.345678, 612.345679, 900.0, None)),
            source=source,
            run_id=dice.choice(("one", "two")),
            started_unix_ns=NOW - int(age) if index % 97 else NOW + HOUR,
            cohort=dice.choice(("a", "b", None)),
            target=dice.choice(("ws://here", "ws://there")),
            noise_profile=dice.choice(("clean", "babble", None, "")),
            length_class=dice.choice(("short", "long")),
            channel_profile=dice.choice(("phone", None)),
            route=dice.choice(("cloud", "cache", None)),
            fallback=dice.choice(("rule", None)),
            cache_hit=dice.choice((True, False, None)),
            turn_kind="silence" if dice.random() < 0.1 else None,
            phase=phase,
            phase_kind="ramp" if phase == "up" else None,
            withheld_metrics=("connect",) if dice.random() < 0.2 else (),
        )
        if dice.random() < 0.05:
            turn = msgspec.structs.replace(turn, outcome="invalid")
        elif dice.random() < 0.1:
            hung_up = dice.choice((3_100, 3_700, 9_000)) * MS
            heard = dice.choice((turn.first_audio_perf_ns, None))
            turn = msgspec.structs.replace(turn, outcome="cut", first_audio_perf_ns=heard, hangup_perf_ns=hung_up)
        found.append(turn)
    return sorted(found, key=lambda turn: turn.started_unix_ns)


FolderOf = Callable[[Sequence[Turn], int], Path]
CALLERS, SERVICES = turns_of("client"), turns_of("service", seed=12)


@pytest.fixture(autouse=True)
def few_turns_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of two hundred turns are large ones."""
    monkeypatch.setattr(cell_reading, "FEWEST_ROWS", 200)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> FolderOf:
    """A store of twelve segments, of which so many were merged by two, in row groups of sixteen turns."""

    @cache
    def made(source: str, compacted: int) -> Path:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(row_groups, "GROUP_ROWS_MAX", 16)
            turns = {"client": CALLERS, "service": SERVICES}[source]
            return stored(tmp_path_factory.mktemp("cells"), turns, segments=12, compacted=compacted)

    return lambda turns, compacted: made(turns[0].source, compacted)


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was read turn by turn."""
    found: list[str] = []
    named = period_turns._views  # pyright: ignore[reportPrivateUsage] - how much is read is what is tested

    def spied(*given: Any) -> Iterator[str]:
        for name in named(*given):
            found.append(name)
            yield name

    monkeypatch.setattr(period_turns, "_views", spied)
    return found


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The row groups whose turns were read, by file and number."""
    found: list[tuple[str, int]] = []
    group_of = cell_reading.turns_of_row_group

    def spied(connection: Any, segment: Any, group: Any, objectives: Any) -> Any:
        found.append((segment.file, group.number))
        return group_of(connection, segment, group, objectives)

    monkeypatch.setattr(cell_reading, "turns_of_row_group", spied)
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The files that cells were read of, by statement."""
    found: list[list[str]] = []
    columns = cell_reading._CellReader._of_segments  # pyright: ignore[reportPrivateUsage] - as above

    def spied(reading: Any, segments: Any, level: int) -> Any:
        result = columns(reading, segments, level)
        found.append([segment.file for segment in segments])
        return result

    monkeypatch.setattr(cell_reading._CellReader, "_of_segments", spied)  # pyright: ignore[reportPrivateUsage]
    return found


def meant(turns: Sequence[Turn], f: Filter, now: int) -> list[Turn]:
    return [
        turn
        for turn in turns
        if now - PERIOD_NS < turn.started_unix_ns <= now
        and (turn.phase_kind != "ramp" or f.phase is not None)
        and all(getattr(f, name) in (None, getattr(turn, name)) for name in ASKED)
    ]


VERDICTS: dict[tuple[str, str, str], bool | None] = {}


def verdict(objective: Objective, turn: Turn) -> bool | None:
    """By the rule, which is asked once."""
    key = objective.name, turn.source, turn.span_id or ""
    if key not in VERDICTS:
        VERDICTS[key] = is_good(objective, turn, turn.source)
    return VERDICTS[key]


def check(
    found: BurnRateAnswer, turns: Sequence[Turn], f: Filter, now: int, objectives: Sequence[Objective] = OBJECTIVES
) -> int:
    """Every figure beside the turns, by the rule itself; how many turns are eligible for one of the objectives."""
    of_filter = meant(turns, f, now)
    valid = [turn for turn in of_filter if turn.outcome != "invalid"]
    asked = [turn for turn in of_filter if turn.turn_kind != "silence"]
    invalid = sum(turn.outcome == "invalid" for turn in asked)
    if valid:
        assert found.source == turns[0].source
        assert found.counted == CountedTurns(len(asked), invalid)
    assert found.newest_unix_ns == max((turn.started_unix_ns for turn in valid), default=None)
    eligible = 0
    for objective in objectives:
        budget = next(each for each in found.budgets if each.name == objective.name)
        assert {each.window for each in budget.windows} >= set(SHOWN_WINDOWS)
        for window in budget.windows:
            since = now - window_ns(window.window)
            of_window = [verdict(objective, turn) for turn in of_filter if turn.started_unix_ns > since]
            expected = of_window.count(True), len(of_window) - of_window.count(None)
            assert (window.counts.good, window.counts.eligible) == expected, (f, objective.name, window.window)
            eligible += expected[1]
    return eligible


@pytest.mark.parametrize(
    ("turns", "compacted"),
    [
        pytest.param(turns, compacted, marks=() if (turns, compacted) == (CALLERS, 10) else pytest.mark.slow)
        for turns in (CALLERS, SERVICES)
        for compacted in (0, 10, 12)
    ],
    ids=lambda value: value if isinstance(value, int) else value[0].source,
)
def test_every_figure_is_that_of_the_turns_at_each_moment(
    folder_of: FolderOf, turns: list[Turn], compacted: int, views: list[str], groups: list[tuple[str, int]]
) -> None:
    folder = folder_of(turns, compacted)
    now, of_first = [NOW], 0
    with StoreReader(folder, wall_clock_ns=lambda: now[-1]) as reader:
        for later in (0, 7 * SECOND, HOUR + 1, DAY_NS):
            now.append(NOW + later)
            eligible = [check(reader.burn_rates(OBJECTIVES, f), turns, f, NOW + later) for f in FILTERS]
            assert [bool(each) for each in eligible] == [f.noise_profile != "nobody's" for f in FILTERS]
            if later == 7 * SECOND:
                assert not set(groups[of_first:]) & set(groups[:of_first]), "windows end within the same row groups"
            of_first = of_first or len(groups)
    assert len(groups) == len(set(groups)) > 0
    assert set(views) == {"unread_turns"}, "where a phase is asked for"


def test_a_turn_at_the_end_of_a_window_is_of_one_side_of_it(tmp_path: Path) -> None:
    """Each turn is a cell of its own: none of them is read."""
    ends = [window_ns(window) for window in (*SHORT_WINDOWS, *SHOWN_WINDOWS)]
    ages = sorted({0, -1, *(end + by for end in (*ends, 27 * DAY_NS) for by in (-1, 0, 1))}, reverse=True)
    turns = [client_turn(number, started_unix_ns=NOW - age, route="cache") for number, age in enumerate(ages, 10_000)]
    turns[-3:] = [msgspec.structs.replace(turn, outcome="invalid") for turn in turns[-3:]]
    fill_store(tmp_path, *(Run(turns=[turn]) for turn in turns))
    with StoreReader(tmp_path, wall_clock_ns=lambda: NOW) as reader:
        found = reader.burn_rates(OBJECTIVES, Filter(route="cache"))
        assert check(found, turns, Filter(route="cache"), NOW)
    days = next(each for each in found.budgets if each.name == "odd").days
    assert sum(day.counts.eligible for day in days) == len([age for age in ages if 0 <= age < PERIOD_NS]) - 2


def test_a_turn_at_the_end_of_a_slot_is_counted_once(tmp_path: Path) -> None:
    """Slots of roll-ups begin at multiples of their length: so do these turns, one every 17 s for seven hours."""
    places = range((NOW >> 34) - 1_500, NOW >> 34)
    turns = [client_turn(number, started_unix_ns=place << 34) for number, place in enumerate(places, 20_000)]
    folder = stored(tmp_path, turns, segments=12, compacted=12)
    objectives = default_objectives()
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as reader:
        for f in (Filter(), Filter(run_id="run-1")):
            assert check(reader.burn_rates(objectives, f), turns, f, NOW, objectives)


def test_no_more_is_kept_than_can_be_asked_again() -> None:
    known = CellsOfTurns()
    first = known.of([ODD], "client")
    first.by_file |= {"gone": None, "here": None}
    nothing = np.empty(0, np.int64)
    are_none, no_keys = nothing.astype(np.bool_), nothing.astype(np.uint64)
    cells = TurnCells(nothing, nothing, nothing, nothing, nothing, no_keys, are_none, are_none, {}, {})
    first.by_group |= {("gone", 0): cells, ("here", 3): cells}
    known.keep_only({"here"})
    assert known.of([ODD], "client").by_file == {"here": None}
    assert list(known.of([ODD], "client").by_group) == [("here", 3)]
    for objective in default_objectives()[:3]:
        assert known.of([objective], "client").by_file == {}
    assert known.of([ODD], "client").by_file == {}


def test_all_filters_are_answered_from_what_was_read_once(
    tmp_path: Path, folder_of: FolderOf, read: list[list[str]]
) -> None:
    folder = copytree(folder_of(CALLERS, 10), tmp_path / "store")
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as reader:
        for f in (*FILTERS[1:7], *FILTERS):
            check(reader.burn_rates(OBJECTIVES, f), CALLERS, f, NOW)
        files = [file for some in read for file in some]
        # Of a filter that means no turn of callers, those of services are looked for.
        assert len(files) == 2 * len(set(files)) > 2
        read.clear()
        more = [client_turn(5_000 + index, started_unix_ns=NOW - index * SECOND) for index in range(20)]
        fill_store(folder, Run(turns=more))
        for f in FILTERS[:6]:
            check(reader.burn_rates(OBJECTIVES, f), [*CALLERS, *more], f, NOW)
        assert [len(some) for some in read] == [1], "the new segment alone"
        # Other objectives judge by other keys.
        assert reader.burn_rates([CLEAN], Filter(route="cache")).counted.total
        assert len(read) > 1


@pytest.mark.parametrize("most", [0, 40, 150])
def test_turns_of_too_many_cells_are_read_each_time(
    folder_of: FolderOf, most: int, monkeypatch: pytest.MonkeyPatch, views: list[str]
) -> None:
    monkeypatch.setattr(cell_reading, "MOST_CELLS", most)
    folder = folder_of(CALLERS, 10)
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as reader:
        for f in FILTERS:
            check(reader.burn_rates(OBJECTIVES, f), CALLERS, f, NOW)
    assert views.count("unread_turns") > len([f for f in FILTERS if f.phase is not None])


def test_what_was_read_before_giving_way_is_not_read_again(
    folder_of: FolderOf, read: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(CALLERS, 12)
    f = Filter(noise_profile="clean")
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as reader:
        reader.burn_rates(OBJECTIVES, f)
        pieces = len(read)
        assert pieces > 2
    read.clear()
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as reader:
        looks = iter([None, None, GaveWayError()])

        def give_way() -> None:
            if (error := next(looks, None)) is not None:
                raise error

        connection = reader._snapshots._connection  # pyright: ignore[reportPrivateUsage] - nobody waits in this test
        monkeypatch.setattr(connection, "give_way", give_way)
        check(reader.burn_rates(OBJECTIVES, f), CALLERS, f, NOW)
        assert next(looks, None) is None
        assert len(read) == pieces


@pytest.mark.parametrize("f", [Filter(), Filter(target="ws://there"), Filter(cohort="a", phase="main")], ids=str)
def test_figures_from_roll_ups_are_those_of_the_turns(folder_of: FolderOf, f: Filter) -> None:
    with StoreReader(folder_of(CALLERS, 12), wall_clock_ns=lambda: NOW) as reader:
        assert check(reader.burn_rates(default_objectives(), f), CALLERS, f, NOW, default_objectives())


def test_the_newest_turn_is_one_that_the_filter_means(tmp_path: Path) -> None:
    turns = [
        client_turn(
            number,
            started_unix_ns=NOW - number * SECOND,
            target="ws://there" if number else "ws://here",
            phase="main" if number > 1 else "end",
        )
        for number in range(40)
    ]
    fill_store(tmp_path, Run(turns=turns))
    with StoreReader(tmp_path, wall_clock_ns=lambda: NOW) as reader:
        for f, seconds in ((Filter(), 0), (Filter(target="ws://there"), 1), (Filter(phase="main"), 2)):
            assert reader.burn_rates(default_objectives(), f).newest_unix_ns == NOW - seconds * SECOND


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_damaged_segment_is_left_out_and_named(tmp_path: Path, folder_of: FolderOf, is_cut: bool) -> None:
    folder = copytree(folder_of(CALLERS, 12), tmp_path / "store")
    damaged = max((folder / "segments").glob("turns-*"), key=lambda path: path.stat().st_size)
    lost = {row["span_id"] for row in pq.read_table(damaged, columns=["span_id"]).to_pylist()}
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2] if is_cut else content[:-600] + bytes(600))
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as reader:
        f = Filter(noise_profile="clean")
        found = reader.burn_rates(OBJECTIVES, f)
        check(found, [turn for turn in CALLERS if turn.span_id not in lost], f, NOW)
    assert len(lost) >= 200
    assert len(found.faults) == 1
    assert damaged.name in found.faults[0]


def test_what_roll_ups_tell_is_taken_from_them(
    folder_of: FolderOf, read: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[object] = []
    count = stretches.count_objectives

    def spied(*given: Any) -> Any:
        counted.append(given)
        return count(*given)

    monkeypatch.setattr(stretches, "count_objectives", spied)
    folder = folder_of(CALLERS, 12)
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as reader:
        reader.burn_rates(default_objectives(), Filter(cohort="a"))
        assert counted
        assert not read
        counted.clear()
        reader.burn_rates(default_objectives(), Filter(route="cache"))
        assert not counted
        assert read
