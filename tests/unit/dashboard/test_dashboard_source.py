"""Choice of the store that the pages query, and judgment of its answer."""

from pathlib import Path

import pytest

from dashboard.pages import now
from dashboard.source import ENV_SLO, ENV_STORE, ObjectivesInForce, Source, reader_of, source_of
from telemetry.model.errors import ConfigError, StoreError
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import RunRecord
from telemetry.store.questions.objectives import ObjectiveCount, ObjectiveCounts
from telemetry.store.questions.pages import PageAnswer, ViewHead
from tests.unit.dashboard.fakes import summary

RUN = RunRecord("new", 2, 4, 200, None, None, False, {})


def test_each_cohort_is_judged_on_its_own() -> None:
    def counted(good: int) -> dict[str, ObjectiveCount]:
        return {objective.name: ObjectiveCount(EligibleTurns(good, 200)) for objective in default_objectives()}

    counts = ObjectiveCounts(counted(190), {"A": counted(200), "B": counted(10)})
    answer = PageAnswer(ViewHead([RUN], RUN, summary=summary(cohorts=("A", "B"))), counts=counts)
    view = now.judged(answer, default_objectives())
    assert len(view.statuses) == len(default_objectives())
    states = {name: status and status.state for name, status in view.cohort_statuses.items()}
    assert states == {"A": "met", "B": "missed"}
    assert now.judged(PageAnswer(ViewHead([RUN])), default_objectives()).verdict is None


def test_a_store_that_is_missing_or_no_address_says_so(tmp_path: Path) -> None:
    in_force = ObjectivesInForce(tuple(default_objectives()))
    with pytest.raises(StoreError, match="there is no store here"):
        now.ask(Source("", reader_of(str(tmp_path / "none")), in_force), {})
    with pytest.raises(StoreError, match="is not the address of a sidecar"):
        reader_of("http://")


def test_the_launcher_names_the_store_through_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("kind: nonsense\n")
    monkeypatch.setenv(ENV_STORE, str(tmp_path))
    monkeypatch.delenv(ENV_SLO, raising=False)
    assert source_of({}).store == str(tmp_path)
    monkeypatch.setenv(ENV_SLO, str(slo))
    with pytest.raises(ConfigError):
        source_of({})
