"""What the list of runs is made from: readers that it shares with the pages."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard import runs_source
from dashboard.filters import Choice
from dashboard.source import open_source
from dashboard.source_names import ENV_RUNS, ENV_SLO, ENV_STORE
from telemetry.model.errors import StoreError
from telemetry.objectives.slo import default_objectives
from telemetry.store.database import DATABASE_NAME
from tests.fixtures_turns import Run, fill_store
from tests.run_folders import latency_run

OBJECTIVES = tuple(default_objectives())


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Nothing is kept from one test to another."""
    yield
    open_source.cache_clear()


def _goes_on(store: Path) -> None:
    """A run that began now and has not ended."""
    run = latency_run("r-now", 20, began_unix_ns=time.time_ns() - 60_000_000_000)
    fill_store(store, Run(run.turns, [each for each in run.spans if each.attributes["voice.run.phase"] == "start"]))


def _end(store: Path) -> None:
    spans = latency_run("r-now", 20, began_unix_ns=time.time_ns() - 60_000_000_000).spans
    fill_store(store, Run([], [each for each in spans if each.attributes["voice.run.phase"] == "end"]))


def test_a_store_that_is_damaged_on_the_way_is_asked_again_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    _goes_on(store)
    monkeypatch.setenv(ENV_STORE, str(store))
    monkeypatch.delenv(ENV_RUNS, raising=False)
    monkeypatch.delenv(ENV_SLO, raising=False)
    source = open_source(str(store), OBJECTIVES)
    database = store / DATABASE_NAME
    kept = database.read_bytes()
    database.write_bytes(b"{" * 20_000)
    (entry,) = runs_source.run_listing().entries
    assert entry.state == "damaged"
    with pytest.raises(StoreError):
        source.now(Choice())
    database.write_bytes(kept)
    assert [each.state for each in runs_source.run_listing().entries] == ["under way"]
    assert source.now(Choice()).run is not None
