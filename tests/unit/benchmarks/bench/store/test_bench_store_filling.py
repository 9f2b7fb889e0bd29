"""A generated store holds what its docstring says, and each of its rows is a turn as the schema would make it."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from telemetry.model.bounds import BOUNDED, metric_bounds
from telemetry.model.metrics import METRICS
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.database import read_only
from telemetry.store.reader import StoreReader
from telemetry.store.schema import DERIVED_METRICS, ENDED_COLUMN, SIDES, ended_unix_ns, turn_from_row
from tests.benchmarks.bench.store.filling import LARGE_RUN_NS, Filled, fill, planned_runs

TURNS = 1_200
END_UNIX_NS = 1_790_000_000 * 10**9
# What nobody in the store did, and what only calls over RTP have.
EMPTY = {"barge_in_stop", "packet_loss", "jitter", "prompt_cached"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Filled, list[int]]:
    store, added = tmp_path_factory.mktemp("filled"), []
    return store, fill(store, TURNS, end_unix_ns=END_UNIX_NS, on_turns=added.append), added


def ask(store: Path, statement: str) -> list[dict[str, Any]]:
    with read_only(store) as database, database.snapshot() as cursor:
        return rows(StoreConnection(cursor, store), statement)


def test_it_holds_what_was_asked_for(filled: tuple[Path, Filled, list[int]]) -> None:
    store, made, added = filled
    (turns,) = ask(
        store,
        "SELECT count(*) FILTER (source = 'client') AS heard, count(*) FILTER (source = 'service') AS reported, "
        "count(DISTINCT span_id) AS ids, count(DISTINCT trace_id) AS calls, max(ended_unix_ns) AS newest FROM turns",
    )
    assert turns["heard"] == made.turns == sum(added) == TURNS
    assert turns["reported"] == pytest.approx(TURNS / 4, rel=0.1)
    assert turns["ids"] == turns["heard"] + turns["reported"]
    assert turns["calls"] == TURNS / 3
    assert abs(turns["newest"] - END_UNIX_NS) < 60 * 10**9
    (spans,) = ask(store, "SELECT count(*) AS rows, count(DISTINCT span_id) AS ids FROM spans")
    assert spans["rows"] == spans["ids"] == made.spans


def test_every_derived_column_is_what_the_definitions_say(filled: tuple[Path, Filled, list[int]]) -> None:
    rows = ask(filled[0], "SELECT * FROM turns ORDER BY span_id LIMIT 300")
    for row in rows:
        turn = turn_from_row(row)
        assert row[ENDED_COLUMN] == ended_unix_ns(turn)
        for metric in DERIVED_METRICS:
            assert row[metric.column] == pytest.approx(metric.value(turn)), metric.name
        is_heard = turn.source == "client" and turn.first_audio_perf_ns is not None
        assert (row["voice_to_voice_lower_ns"] is not None) == is_heard
        for metric in BOUNDED:
            bounds = metric_bounds(turn, metric) or (None, None)
            assert tuple(row[metric.bound_column(side)] for side in SIDES) == pytest.approx(bounds), metric.name


def test_latencies_have_many_values(filled: tuple[Path, Filled, list[int]]) -> None:
    (row,) = ask(filled[0], "SELECT count(DISTINCT voice_to_voice_ns) AS distinct, count(*) AS n FROM turns")
    assert row["distinct"] > 0.9 * row["n"]


def test_the_reader_answers_over_it(filled: tuple[Path, Filled, list[int]]) -> None:
    store, made, _ = filled
    with StoreReader(store) as reader:
        runs = reader.runs()
        assert [run.run_id for run in reversed(runs)] == [run.run_id for run in made.runs]
        assert all(run.ended for run in runs)
        assert runs[0].turns == TURNS // 2
        summary, processes = reader.summary(Filter(run_id="large")), reader.processes("large")
        client, service = reader.turn(made.trace_id, 0)
        spans = reader.spans(made.trace_id)
    assert summary.loss.missing == 0
    assert len(processes) == 8
    assert all(process.began_unix_ns is not None and process.ended for process in processes)
    assert summary.limit is None
    assert {cohort.cohort for cohort in summary.cohorts} == {"control", "canary"}
    assert all(summary.metrics[name].n for name in METRICS if name not in EMPTY)
    assert client is not None
    assert service is not None
    ids = {span.span_id for span in spans}
    assert {span.parent_span_id for span in spans} - {None} <= ids
    assert sum(span.name == "voice.turn" for span in spans) == 6
    assert all(client.started_unix_ns - 10**9 <= span.start_unix_ns for span in spans if span.name == "voice.turn")
    moments = [event.unix_ns for span in spans for event in span.events]
    assert moments
    assert all(abs(moment - client.started_unix_ns) < 60 * 10**9 for moment in moments)


@pytest.mark.parametrize("turns", [3, 6, 300, 9_999, 10_000_000])
def test_runs_follow_each_other_and_the_large_one_is_the_newest(turns: int) -> None:
    runs = planned_runs(turns, END_UNIX_NS)
    assert sum(run.calls for run in runs) == turns // 3
    assert runs[-1].calls == (turns // 3 + 1) // 2
    assert runs[-1].begin_unix_ns + LARGE_RUN_NS == END_UNIX_NS
    assert all(run.calls > 0 for run in runs)
    for one, other in pairwise(runs):
        assert one.begin_unix_ns + one.lasts_ns < other.begin_unix_ns
