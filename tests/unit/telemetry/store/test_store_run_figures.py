"""What the list of runs asks of a run in one read: the same as the questions by themselves, and as SQL by hand."""

from pathlib import Path

import duckdb
import pytest

from telemetry.objectives.run_verdict import run_verdict
from telemetry.objectives.slo import default_objectives, judge
from telemetry.store import reader as readers
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.run_verdict import RunVerdictEvidence, run_verdict_evidence
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, fill_store
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


def test_of_a_run_that_goes_on_nothing_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    slow = latency_run("r-slow", 60, llm_ms=900)
    fill_store(store, Run(slow.turns, [each for each in slow.spans if each.attributes["voice.run.phase"] == "start"]))
    last_unix_ns = max(each.started_unix_ns for each in slow.turns if each.source == "client")
    judged: list[str] = []

    def watched(*values: object) -> RunVerdictEvidence:
        judged.append("r-slow")
        return run_verdict_evidence(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(readers, "run_verdict_evidence", watched)
    f = Filter(run_id="r-slow")
    with StoreReader(store, wall_clock_ns=lambda: last_unix_ns + 5 * SECOND) as reader:
        goes_on = reader.run_figures("r-slow", OBJECTIVES)
        assert (goes_on.evidence, judged) == (None, [])
        assert goes_on.summary == reader.summary(f)
        assert list(goes_on.processes) == reader.processes("r-slow")
        # The moment that is given decides, for the limit of the generator too: these processes are lost by then.
        ended = reader.run_figures("r-slow", OBJECTIVES, last_unix_ns + HOUR_NS)
        assert (ended.evidence is not None, judged) == (True, ["r-slow"])
        assert ended.summary.limit is not None
        assert goes_on.summary.limit is None
        assert ended.evidence == reader.run_verdict(f, OBJECTIVES)
    with StoreReader(store, wall_clock_ns=lambda: last_unix_ns + HOUR_NS) as reader:
        assert reader.run_figures("r-slow", OBJECTIVES) == ended
        assert reader.run_figures("r-slow", OBJECTIVES, last_unix_ns + 5 * SECOND) == goes_on


def test_the_entry_of_a_run_that_goes_on_has_its_figures_and_no_verdict(tmp_path: Path) -> None:
    store = tmp_path / "store"
    slow = latency_run("r-slow", 60, llm_ms=900)
    fill_store(store, Run(slow.turns, [each for each in slow.spans if each.attributes["voice.run.phase"] == "start"]))
    now = max(each.started_unix_ns for each in slow.turns if each.source == "client") + 5 * SECOND
    (entry,) = RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=now)
    assert (entry.state, entry.sentence) == ("under way", "the run is under way")
    files = [str(each) for each in (store / "segments").glob("turns-*.parquet")]
    by_hand = duckdb.execute(
        "SELECT count(*), count(*) FILTER (WHERE outcome = 'invalid'),"
        " quantile_cont(voice_to_voice_ns, [0.5, 0.95]) FILTER (WHERE outcome <> 'invalid')"
        " FROM read_parquet($1, union_by_name = true) WHERE run_id = 'r-slow' AND source = 'client'",
        [files],
    ).fetchone()
    assert by_hand is not None
    assert (entry.turns, entry.invalid, [entry.p50_ns, entry.p95_ns]) == by_hand
    # The same turns of a run that has announced its end are judged, with the cause as far as it is shown.
    fill_store(store, Run([], [each for each in slow.spans if each.attributes["voice.run.phase"] == "end"]))
    (entry,) = RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=now)
    with StoreReader(store) as reader:
        found = reader.run_verdict(Filter(run_id="r-slow"), OBJECTIVES)
    assert found.cause is not None
    judged = judge(OBJECTIVES, found.counts.count, found.counts.good_range)
    assert (entry.state, entry.sentence) == ("missed", run_verdict(OBJECTIVES, judged, cause=found.cause).sentence)
