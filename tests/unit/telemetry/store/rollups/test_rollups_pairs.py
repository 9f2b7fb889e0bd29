"""Turns of both sides brought together pile by pile, and segment by segment, as over the whole set of turns."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from telemetry.store.rollups import making
from telemetry.store.rollups.database import Database, open_database
from telemetry.store.rollups.pairs import closed_beyond, pair
from telemetry.store.rollups.partials import unpaired
from telemetry.store.rollups.rollup import Rollup, added
from telemetry.store.schema import ArrowTable, turns_table
from tests.fixtures_turns import SECOND, START_UNIX_NS, exchange
from tests.unit.telemetry.store.rollups.answers_compared import compared, stored
from tests.unit.telemetry.store.rollups.paired_turns import (
    counts_of_rollup,
    counts_of_turns,
    open_turns_of,
    reported_calls,
)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with open_database() as opened:
        yield opened


def paired_in_piles(database: Database, open_turns: ArrowTable, pile: int) -> Rollup:
    parts: list[Rollup] = []
    waiting = Rollup()
    for begin in range(0, open_turns.num_rows, pile):
        part = added([waiting, Rollup(open_turns=open_turns.slice(begin, pile))])
        part = pair(database, part, is_last=False)
        parts.append(Rollup(part.cells))
        waiting = Rollup(open_turns=part.open_turns)
    return pair(database, added([*parts, waiting]), is_last=True)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("pile", [pytest.param(12, marks=pytest.mark.slow), 40, 10_000])
def test_piles_of_any_size_count_as_the_whole_set_of_turns(database: Database, seed: int, pile: int) -> None:
    turns = reported_calls(seed)
    found = counts_of_rollup(paired_in_piles(database, open_turns_of(database, turns), pile))
    assert found == counts_of_turns(database, turns)
    assert any(how == "unmatched" and of_run for _, how, of_run in found[0])


@pytest.mark.slow
@pytest.mark.parametrize("rows", [24, 100])
def test_a_segment_rolled_up_in_batches_counts_as_the_whole_set_of_turns(
    database: Database, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(making, "BATCH_ROWS", rows)
    turns = reported_calls(11)
    tables = [turns_table(turns[begin : begin + rows]) for begin in range(0, len(turns), rows)]
    found = pair(database, making.roll_up_tables(database, tables), is_last=True)
    assert counts_of_rollup(found) == counts_of_turns(database, turns)


def call_with_late_reports(call: int, *, run_id: str = "a") -> tuple[list[Turn], list[Turn]]:
    """A call whose turns all met, and what the service, which continues the trace of no run, reports of it later."""
    early: list[Turn] = []
    late: list[Turn] = []
    for index in range(call * 3, call * 3 + 3):
        client, service = exchange(index, run_id=run_id)
        early += [client, msgspec.structs.replace(service, run_id="")]
        unheard = {"run_id": "", "response_id": f"late-{index}", "turn_index": 9, "span_id": f"{index + 2**40:016x}"}
        late.append(msgspec.structs.replace(service, started_unix_ns=service.started_unix_ns + SECOND, **unheard))
    return early, late


@pytest.mark.parametrize("segments", [2, 3])
def test_a_late_turn_in_a_later_segment_counts_under_the_run_of_its_call(database: Database, segments: int) -> None:
    calls = [call_with_late_reports(call, run_id="ab"[call % 2]) for call in range(8)]
    first = [turn for early, _ in calls for turn in early]
    late = [turn for _, turns in calls for turn in turns]
    size = -(-len(late) // (segments - 1))
    piles = [first, *(late[begin : begin + size] for begin in range(0, len(late), size))]
    kept: list[Rollup] = []
    for turns in piles:
        part = pair(database, unpaired(database, turns_table(turns)), is_last=False)
        moments = [turn.started_unix_ns for turn in turns]
        kept.append(closed_beyond(database, part, min(moments), max(moments)))
    found = counts_of_rollup(pair(database, added(kept), is_last=True))
    assert found == counts_of_turns(database, [*first, *late])
    assert found[0]["", "unmatched", "a"] == found[0]["", "unmatched", "b"] == 12


def test_met_calls_are_kept_near_the_ends_of_a_segment_only(database: Database) -> None:
    calls = [call_with_late_reports(call) for call in range(40)]
    turns = [turn for early, _ in calls for turn in early]
    part = pair(database, unpaired(database, turns_table(turns)), is_last=False)
    moments = [turn.started_unix_ns for turn in turns]
    assert part.open_turns is not None
    assert part.open_turns.column("source").to_pylist() == ["met"] * 120
    kept = closed_beyond(database, part, min(moments), max(moments), kept=12)
    assert kept.open_turns is not None
    assert sorted(kept.open_turns.column("started_unix_ns").to_pylist()) == [
        START_UNIX_NS + place * SECOND for place in (*range(6), *range(114, 120))
    ]
    assert counts_of_rollup(kept) == counts_of_rollup(part), "rows of met responses count in no figure"
    late = [turn for _, turns in (calls[0], calls[20], calls[-1]) for turn in turns]
    both = added([kept, unpaired(database, turns_table(late))])
    found = counts_of_rollup(pair(database, both, is_last=True))[0]
    assert (found["", "unmatched", "a"], found["", "unmatched", None]) == (6, 3)


def test_a_second_report_of_a_response_that_was_met_counts_nowhere(database: Database) -> None:
    early, _ = call_with_late_reports(0)
    again = [
        msgspec.structs.replace(turn, span_id=f"{place + 7:016x}", started_unix_ns=turn.started_unix_ns + SECOND)
        for place, turn in enumerate(early)
        if turn.source == "service"
    ]
    part = pair(database, unpaired(database, turns_table(early)), is_last=False)
    found = pair(database, added([part, unpaired(database, turns_table(again))]), is_last=True)
    assert counts_of_rollup(found) == counts_of_turns(database, [*early, *again])
    assert counts_of_rollup(found)[0] == {("", "matched", None): 3}


def test_reports_of_two_calls_under_one_unknown_trace_stay_two(database: Database) -> None:
    turns: list[Turn] = []
    for call in range(2):
        client, service = exchange(call * 3, run_id="a")
        service = msgspec.structs.replace(service, trace_id="ab" * 16, response_id=None, call_id=client.call_id)
        turns += [msgspec.structs.replace(service, run_id=""), client]
    turns.sort(key=lambda turn: turn.source == "client")  # neither call is known when the reports arrive
    found = counts_of_rollup(paired_in_piles(database, open_turns_of(database, turns), 2))
    assert found == counts_of_turns(database, turns)
    assert found[0] == {("", "matched", None): 2}


@pytest.mark.slow
def test_late_turns_of_a_compacted_store_count_as_those_of_its_turns(tmp_path: Path) -> None:
    calls = [call_with_late_reports(call) for call in range(30)]
    turns = [turn for early, _ in calls for turn in early] + [turn for _, turns in calls for turn in turns]
    folder = stored(tmp_path / "store", turns, segments=4, compacted=4)
    f = Filter(run_id="a")
    with StoreReader(folder) as exact, StoreReader(folder, fewest_rolled_up=-1) as rolled:
        found = rolled.summary(f).client_service_delta
        assert found.approximate
        compared(exact.summary(f).client_service_delta, found)
        assert (found.joined, found.service_only) == (90, 90)
