"""What the list of runs asks of a run in one read: the same as the questions by themselves, and as SQL by hand."""

from pathlib import Path

import duckdb
import pytest

from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import START_UNIX_NS, fill_store
from tests.run_folders import HOUR_NS, latency_run

OBJECTIVES = default_objectives()
NOW = START_UNIX_NS + 20 * HOUR_NS


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("figures") / "store"
    # The second one is slow, so that objectives are missed and a cause is looked for.
    fill_store(store, latency_run("r-one", 120))
    fill_store(store, latency_run("r-two", 120, llm_ms=900, seed=3, began_unix_ns=START_UNIX_NS + HOUR_NS))
    return store


@pytest.mark.parametrize("fewest_rolled_up", [30_000, 0], ids=["turn by turn", "rolled up"])
@pytest.mark.parametrize("run_id", ["r-one", "r-two", "service:bot:2026-09-21"])
def test_the_figures_of_a_run_are_those_of_the_questions(store: Path, run_id: str, fewest_rolled_up: int) -> None:
    f = Filter(run_id=run_id)
    with StoreReader(store, wall_clock_ns=lambda: NOW, fewest_rolled_up=fewest_rolled_up) as reader:
        found = reader.run_figures(run_id, OBJECTIVES)
        assert found.summary == reader.summary(f)
        assert found.evidence == reader.run_verdict(f, OBJECTIVES)
        assert list(found.processes) == reader.processes(run_id)
    files = [str(each) for each in (store / "segments").glob("turns-*.parquet")]
    by_hand = duckdb.execute(
        "SELECT process_id, count(*) FROM read_parquet($1, union_by_name = true)"
        " WHERE run_id = $2 AND source = 'client' AND process_id <> '' GROUP BY ALL",
        [files, run_id],
    ).fetchall()
    assert {each.process_id: each.turns for each in found.processes if each.turns} == dict(by_hand)
    assert bool(by_hand) == run_id.startswith("r-")
