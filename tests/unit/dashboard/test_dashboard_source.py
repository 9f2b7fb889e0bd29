"""What the pages ask of a store, and what they may keep of it."""

from pathlib import Path

import pytest

from dashboard.filters import Choice
from dashboard.source import ENV_SLO, ENV_STORE, MAX_DOTS, Source, buckets_for, open_source, source_from_environment
from telemetry.model.errors import ConfigError, StoreError
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import RunRecord
from tests.unit.dashboard.fakes import FakeReader, summary

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
    assert view.missing_run == "gone"


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


def test_the_summary_at_hand_serves_the_objectives() -> None:
    reader = FakeReader([NEW], summary())
    view = source(reader, [1]).now(Choice())
    assert reader.asked.count("summary") == 1
    assert len(view.statuses) == len(default_objectives())


def test_each_cohort_is_judged_on_its_own() -> None:
    reader = FakeReader([NEW], summary(cohorts=("A", "B")))
    view = source(reader, [1]).now(Choice())
    assert set(view.cohort_statuses) == {"A", "B"}
    assert "good A voice_to_voice" in reader.asked
    assert "good B voice_to_voice" in reader.asked


def test_single_turns_are_asked_for_only_while_there_are_few() -> None:
    few, many = FakeReader([NEW], summary(MAX_DOTS)), FakeReader([NEW], summary(MAX_DOTS + 1))
    source(few, [1]).now(Choice())
    source(many, [1]).now(Choice())
    assert f"turns client {MAX_DOTS}" in few.asked
    assert not any(each.startswith("turns") for each in many.asked)


def test_buckets_grow_with_the_turns_within_bounds() -> None:
    assert [buckets_for(n) for n in (0, 300, 1_200, 10_000_000)] == [10, 10, 40, 90]


def test_a_store_that_is_missing_says_so_when_it_is_asked(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store here"):
        open_source(tmp_path / "none", None).now(Choice())


def test_the_launcher_names_the_store_through_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("kind: nonsense\n")
    monkeypatch.setenv(ENV_STORE, str(tmp_path))
    monkeypatch.delenv(ENV_SLO, raising=False)
    assert source_from_environment() is source_from_environment()
    monkeypatch.setenv(ENV_SLO, str(slo))
    with pytest.raises(ConfigError):
        source_from_environment()
