"""What the pages ask of a store, and the readers that they share with the list of runs."""

from pathlib import Path
from typing import cast

import pytest

from dashboard import source as dashboard_source
from dashboard.pages import now
from dashboard.source import ENV_SLO, ENV_STORE, ObjectivesInForce, Source, reader_of, source_of
from telemetry.model.errors import ConfigError, StoreError
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import RunRecord
from telemetry.store.reader import StoreReader
from tests.unit.dashboard.fakes import FakeReader, summary

IN_FORCE = ObjectivesInForce(tuple(default_objectives()))
OLD = RunRecord("old", 1, 5, 200, None, None, True, {})
NEW = RunRecord("new", 2, 4, 200, None, None, False, {})


def source(reader: FakeReader) -> Source:
    return Source("", cast("StoreReader", reader), IN_FORCE)


def test_the_newest_run_is_shown_unless_one_is_named() -> None:
    view = now.ask(source(FakeReader([OLD, NEW], summary())), {})
    assert view.run == NEW
    assert now.ask(source(FakeReader([OLD, NEW], summary())), {"run": "old"}).run == OLD


def test_a_run_that_is_not_there_is_reported_and_not_replaced() -> None:
    view = now.ask(source(FakeReader([OLD], summary())), {"run": "gone"})
    assert view.run is None


def test_a_page_is_one_question() -> None:
    reader = FakeReader([NEW], summary())
    view = now.ask(source(reader), {})
    assert reader.asked == ["page"]
    assert len(view.statuses) == len(default_objectives())


def test_each_cohort_is_judged_on_its_own() -> None:
    reader = FakeReader([NEW], summary(cohorts=("A", "B")))
    reader.good_of = {"A": (200, 200), "B": (10, 200)}
    view = now.ask(source(reader), {})
    found = {name: status and status.state for name, status in (view.cohort_statuses or {}).items()}
    assert found == {"A": "met", "B": "missed"}


def test_a_store_that_is_missing_says_so_when_it_is_asked(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store here"):
        now.ask(Source("", reader_of(str(tmp_path / "none")), IN_FORCE), {})


def test_the_launcher_names_the_store_through_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("kind: nonsense\n")
    monkeypatch.setenv(ENV_STORE, str(tmp_path))
    monkeypatch.delenv(ENV_SLO, raising=False)
    assert source_of({}).store == str(tmp_path)
    monkeypatch.setenv(ENV_SLO, str(slo))
    with pytest.raises(ConfigError):
        source_of({})


def test_the_address_of_a_sidecar_is_checked() -> None:
    with pytest.raises(StoreError, match="is not the address of a sidecar"):
        dashboard_source.reader_of("http://")
