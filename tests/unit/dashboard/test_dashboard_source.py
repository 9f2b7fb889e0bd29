"""What the pages ask of a store, and the readers that they share with the list of runs."""

import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard import source as dashboard_source
from dashboard.links import Choice
from dashboard.source import ENV_RUNS, ENV_SLO, ENV_STORE, Source, open_source, source_of
from telemetry.comparison.verdict import RegressionMargin
from telemetry.model.errors import ConfigError, StoreError
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import RunRecord
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import Run, fill_store
from tests.run_folders import latency_run, run_folder
from tests.unit.dashboard.fakes import FakeReader, summary

OLD = RunRecord("old", 1, 5, 200, None, None, True, {})
NEW = RunRecord("new", 2, 4, 200, None, None, False, {})


def source(reader: FakeReader) -> Source:
    return Source(reader, tuple(default_objectives()))


def test_the_newest_run_is_shown_unless_one_is_named() -> None:
    view = source(FakeReader([OLD, NEW], summary())).now(Choice())
    assert view.run == NEW
    assert source(FakeReader([OLD, NEW], summary())).now(Choice(run="old")).run == OLD


def test_a_run_that_is_not_there_is_reported_and_not_replaced() -> None:
    view = source(FakeReader([OLD], summary())).now(Choice(run="gone"))
    assert view.run is None


def test_a_page_is_one_question() -> None:
    reader = FakeReader([NEW], summary())
    view = source(reader).now(Choice())
    assert reader.asked == ["page"]
    assert len(view.statuses) == len(default_objectives())


def test_each_cohort_is_judged_on_its_own() -> None:
    reader = FakeReader([NEW], summary(cohorts=("A", "B")))
    reader.good_of = {"A": (200, 200), "B": (10, 200)}
    view = source(reader).now(Choice())
    found = {name: status and status.state for name, status in view.cohort_statuses.items()}
    assert found == {"A": "met", "B": "missed"}


def test_a_store_that_is_missing_says_so_when_it_is_asked(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store here"):
        open_source(str(tmp_path / "none"), ()).now(Choice())


def test_the_launcher_names_the_store_through_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("kind: nonsense\n")
    monkeypatch.setenv(ENV_STORE, str(tmp_path))
    monkeypatch.delenv(ENV_SLO, raising=False)
    assert source_of({}) is source_of({})
    monkeypatch.setenv(ENV_SLO, str(slo))
    with pytest.raises(ConfigError):
        source_of({})


OBJECTIVES = tuple(default_objectives())


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Nothing is kept from one test to another."""
    yield
    dashboard_source._catalog.cache_clear()
    open_source.cache_clear()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[StoreReader]]:
    """The readers that were opened, as far as anybody holds them still."""
    seen: list[weakref.ref[StoreReader]] = []

    def watched(store: str, _token: str | None) -> StoreReader:
        reader = StoreReader(store)
        seen.append(weakref.ref(reader))
        return reader

    monkeypatch.setattr(dashboard_source, "open_store", watched)
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
    (entry,) = dashboard_source.run_listing().entries
    assert (entry.state, len(opened)) == ("under way", 1)
    source = open_source(f"{store}/", OBJECTIVES)
    assert source.now(Choice()).run is not None
    assert dashboard_source.run_listing().entries[0].turns == entry.turns
    assert dashboard_source.details(entry).run_id == "r-now"
    assert len(opened) == 1
    # The list lets go of a store whose runs have ended, and the page still has it.
    _end(store)
    (ended,) = dashboard_source.run_listing().entries
    assert ended.state != "under way"
    fill_store(store, latency_run("r-later", 20))
    view = source.now(Choice())
    assert {each.run_id for each in view.runs} >= {"r-now", "r-later"}
    assert dashboard_source.run_listing().entries[0] == ended
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
    entries = dashboard_source.run_listing(60).entries
    assert {each.name for each in entries} == {"one", "other"}
    (found,) = dashboard_source.compared(entries, RegressionMargin(50_000_000), OBJECTIVES)
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
    (entry,) = dashboard_source.run_listing().entries
    assert entry.state == "damaged"
    with pytest.raises(StoreError):
        source.now(Choice())
    for each, content in kept.items():
        each.write_bytes(content)
    assert [each.state for each in dashboard_source.run_listing().entries] == ["under way"]
    assert source.now(Choice()).run is not None
    assert len(opened) == 1


def test_the_reader_of_a_sidecar_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first = dashboard_source.reader_of("http://127.0.0.1:4318/")
    assert dashboard_source.reader_of("http://127.0.0.1:4318") is first
    with pytest.raises(StoreError, match="is not the address of a sidecar"):
        dashboard_source.reader_of("http://")
