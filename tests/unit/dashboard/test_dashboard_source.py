"""What the pages ask of a store, and what they may keep of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.filters import Choice
from dashboard.source import Source, open_source, source_of
from dashboard.source_names import ENV_SLO, ENV_STORE
from telemetry.model.errors import ConfigError, StoreError
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import RunRecord
from tests.unit.dashboard.fakes import FakeReader, summary
from tests.unit.dashboard.scenes import S

OLD = RunRecord("old", 1, 5, 200, None, None, True, {})
NEW = RunRecord("new", 2, 4, 200, None, None, False, {})


def source(reader: FakeReader, states: list[int]) -> Source:
    return Source(reader, default_objectives(), lambda: states[-1])


def test_the_newest_run_is_shown_unless_one_is_named() -> None:
    view = source(FakeReader([OLD, NEW], summary()), [1]).now(Choice())
    assert view.run == NEW
    assert source(FakeReader([OLD, NEW], summary()), [1]).now(Choice(run="old")).run == OLD


def test_a_run_that_is_not_there_is_reported_and_not_replaced() -> None:
    view = source(FakeReader([OLD], summary()), [1]).now(Choice(run="gone"))
    assert view.run is None


def test_a_store_that_has_not_changed_is_not_asked_again() -> None:
    reader, states = FakeReader([NEW], summary()), [1]
    kept = source(reader, states)
    first = kept.now(Choice())
    asked = len(reader.asked)
    assert kept.now(Choice()) is first
    assert len(reader.asked) == asked
    kept.now(Choice(cohort="A"))
    assert len(reader.asked) > asked
    asked = len(reader.asked)
    states.append(2)
    assert kept.now(Choice()) is not first
    assert len(reader.asked) > asked


def test_a_process_that_counts_as_lost_by_now_is_asked_about_again_once() -> None:
    heard, now = 1_000 * S, [1_000 * S]
    reader = FakeReader([NEW], replace(summary(), heard_unix_ns=heard))
    kept = Source(reader, default_objectives(), lambda: 1, wall_clock_ns=lambda: now[-1])
    first = kept.now(Choice())
    now.append(heard + 30 * S)
    assert kept.now(Choice()) is first
    now.append(heard + 31 * S)
    assert kept.now(Choice()) is not first, "the store is the same, and says something else"
    asked = len(reader.asked)
    now.append(heard + 300 * S)
    kept.now(Choice())
    assert len(reader.asked) == asked


def test_a_page_is_one_question() -> None:
    reader = FakeReader([NEW], summary())
    view = source(reader, [1]).now(Choice())
    assert reader.asked == ["page"]
    assert len(view.statuses) == len(default_objectives())


def test_each_cohort_is_judged_on_its_own() -> None:
    reader = FakeReader([NEW], summary(cohorts=("A", "B")))
    reader.good_of = {"A": (200, 200), "B": (10, 200)}
    view = source(reader, [1]).now(Choice())
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
