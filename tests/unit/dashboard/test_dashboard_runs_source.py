"""What the list of runs is made from: readers that it shares with the pages."""

import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard import open_readers, runs_source
from dashboard.filters import Choice
from dashboard.source import open_source
from dashboard.source_names import ENV_RUNS, ENV_SLO, ENV_STORE
from telemetry.comparison.verdict import RegressionMargin
from telemetry.model.errors import StoreError
from telemetry.objectives.slo import default_objectives
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import Run, fill_store
from tests.run_folders import latency_run, run_folder

OBJECTIVES = tuple(default_objectives())


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Nothing is kept from one test to another."""
    yield
    runs_source._catalog.cache_clear()
    open_source.cache_clear()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[StoreReader]]:
    """The readers that were opened, as far as anybody holds them still."""
    seen: list[weakref.ref[StoreReader]] = []

    def watched(store: str, _token: str | None) -> StoreReader:
        reader = StoreReader(store)
        seen.append(weakref.ref(reader))
        return reader

    monkeypatch.setattr(open_readers, "open_store", watched)
    open_source.cache_clear()
    return seen


def _goes_on(store: Path) -> None:
    """A run that began now and has not ended."""
    run = latency_run("r-now", 20, began_unix_ns=time.time_ns() - 60_000_000_000)
    fill_store(store, Run(run.turns, [each for each in run.spans if each.attributes["voice.run.phase"] == "start"]))


def _end(store: Path) -> None:
    spans = latency_run("r-now", 20, began_unix_ns=time.time_ns() - 60_000_000_000).spans
    fill_store(store, Run([], [each for each in spans if each.attributes["voice.run.phase"] == "end"]))


def test_pages_and_the_list_share_the_reader_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[weakref.ref[StoreReader]]
) -> None:
    store = tmp_path / "store"
    _goes_on(store)
    monkeypatch.setenv(ENV_STORE, str(store))
    monkeypatch.delenv(ENV_RUNS, raising=False)
    monkeypatch.delenv(ENV_SLO, raising=False)
    # The list first and then a page, by another name of the folder.
    (entry,) = runs_source.run_listing().entries
    assert (entry.state, len(opened)) == ("under way", 1)
    source = open_source(f"{store}/", OBJECTIVES)
    assert source.now(Choice()).run is not None
    assert runs_source.run_listing().entries[0].turns == entry.turns
    assert runs_source.details(entry).run_id == "r-now"
    assert len(opened) == 1
    # The list lets go of a store whose runs have ended, and the page still has it.
    _end(store)
    (ended,) = runs_source.run_listing().entries
    assert ended.state != "under way"
    fill_store(store, latency_run("r-later", 20))
    view = source.now(Choice())
    assert {each.run_id for each in view.runs} >= {"r-now", "r-later"}
    assert runs_source.run_listing().entries[0] == ended
    assert len(opened) == 1
    # Nobody holds it any more.
    del source
    open_source.cache_clear()
    assert [each() for each in opened] == [None]


def test_of_stores_that_nobody_looks_at_no_reader_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[weakref.ref[StoreReader]]
) -> None:
    root = tmp_path / "runs"
    for name in ("one", "other"):
        run_folder(root, name, latency_run(f"r-{name}", 20))
    monkeypatch.setenv(ENV_RUNS, f'["{root}"]')
    monkeypatch.delenv(ENV_STORE, raising=False)
    monkeypatch.delenv(ENV_SLO, raising=False)
    entries = runs_source.run_listing(60).entries
    assert {each.name for each in entries} == {"one", "other"}
    (found,) = runs_source.compared(entries, RegressionMargin(50_000_000), OBJECTIVES)
    assert {found.baseline.run_id, found.candidate.run_id} == {"r-one", "r-other"}
    assert len(opened) == 4
    assert [each() for each in opened] == [None] * 4


def test_a_store_that_is_damaged_on_the_way_is_asked_again_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[weakref.ref[StoreReader]]
) -> None:
    store = tmp_path / "store"
    _goes_on(store)
    monkeypatch.setenv(ENV_STORE, str(store))
    monkeypatch.delenv(ENV_RUNS, raising=False)
    monkeypatch.delenv(ENV_SLO, raising=False)
    source = open_source(str(store), OBJECTIVES)
    manifests = [store / "manifest.json", store / "manifest.previous.json"]
    kept = {each: each.read_bytes() for each in manifests if each.exists()}
    for each in kept:
        each.write_bytes(b"{")
    (entry,) = runs_source.run_listing().entries
    assert entry.state == "damaged"
    with pytest.raises(StoreError):
        source.now(Choice())
    for each, content in kept.items():
        each.write_bytes(content)
    assert [each.state for each in runs_source.run_listing().entries] == ["under way"]
    assert source.now(Choice()).run is not None
    assert len(opened) == 1


def test_the_reader_of_a_sidecar_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_readers.reader_of("http://127.0.0.1:4318/")
    assert open_readers.reader_of("http://127.0.0.1:4318") is first
    with pytest.raises(StoreError, match="is not the address of a sidecar"):
        open_readers.reader_of("http://")
