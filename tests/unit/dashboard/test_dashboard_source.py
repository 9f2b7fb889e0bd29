"""What the pages ask of a store, and the readers that they share with the list of runs."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard import source as dashboard_source
from dashboard.links import Choice
from dashboard.source import ENV_SLO, ENV_STORE, Source, open_source, source_of
from telemetry.model.errors import ConfigError, StoreError
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import RunRecord
from tests.fixtures_turns import Run, fill_store
from tests.run_folders import latency_run
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
    dashboard_source._offered.listing = None
    open_source.cache_clear()


def _goes_on(store: Path) -> None:
    """A run that began now and has not ended."""
    run = latency_run("r-now", 20, began_unix_ns=time.time_ns() - 60_000_000_000)
    fill_store(store, Run(run.turns, [each for each in run.spans if each.attributes["voice.run.phase"] == "start"]))


def _end(store: Path) -> None:
    spans = latency_run("r-now", 20, began_unix_ns=time.time_ns() - 60_000_000_000).spans
    fill_store(store, Run([], [each for each in spans if each.attributes["voice.run.phase"] == "end"]))


def test_the_address_of_a_sidecar_is_checked() -> None:
    with pytest.raises(StoreError, match="is not the address of a sidecar"):
        dashboard_source.reader_of("http://")
