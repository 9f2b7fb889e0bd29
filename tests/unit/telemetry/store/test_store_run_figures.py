"""What the list of runs asks of a run in one read: the same as the questions by themselves, and as SQL by hand."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import msgspec
import pytest

from telemetry.objectives.run_verdict import run_verdict
from telemetry.objectives.slo import default_objectives, judge
from telemetry.store import run_figures as figures
from telemetry.store.answers import Filter
from telemetry.store.questions.summaries import totals_of
from telemetry.store.questions.verdicts import judged_turns, run_verdict_evidence
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.turn_questions import TurnQuestions
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, fill_store, synthetic_run
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
        summary, evidence = reader.summary(f), reader.run_verdict(f, OBJECTIVES)
        assert found.totals == totals_of(summary)
        assert (found.loss, found.is_generator_limited) == (summary.loss, summary.limit is not None)
        assert found.verdict == judged_turns(OBJECTIVES, evidence.counts, summary, evidence.cause).verdict
        assert list(found.processes) == reader.processes(run_id)
    files = [str(each) for each in (store / "segments").glob("turns-*.parquet")]
    by_hand = duckdb.execute(
        "SELECT process_id, count(*) FROM read_parquet($1, union_by_name = true)"
        " WHERE run_id = $2 AND source = 'client' AND process_id <> '' GROUP BY ALL",
        [files, run_id],
    ).fetchall()
    assert {each.process_id: each.turns for each in found.processes if each.turns} == dict(by_hand)
    assert bool(by_hand) == run_id.startswith("r-")


def _begun(run: Run) -> Run:
    """A run that has not announced its end."""
    return Run(run.turns, [each for each in run.spans if each.attributes.get("voice.run.phase") != "end"])


@pytest.mark.parametrize("fewest_rolled_up", [30_000, 0], ids=["turn by turn", "rolled up"])
def test_of_a_run_that_goes_on_nothing_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fewest_rolled_up: int
) -> None:
    store = tmp_path / "store"
    # Turns of ramps, silent, invalid and cut ones too: all that figures leave out.
    mixed = synthetic_run("r-mixed", 240)
    silent = [msgspec.structs.replace(each, turn_kind="silence") for each in mixed.turns[:40]]
    ramps = [msgspec.structs.replace(each, phase="up", phase_kind="ramp") for each in mixed.turns[40:90]]
    fill_store(store, Run([*silent, *ramps, *mixed.turns[90:]], _begun(mixed).spans))
    last_unix_ns = max(each.started_unix_ns for each in mixed.turns if each.source == "client")
    soon, later = last_unix_ns + 5 * SECOND, last_unix_ns + HOUR_NS
    asked: list[str] = []
    for name in ("summary", "objective_counts"):
        monkeypatch.setattr(TurnQuestions, name, _watched(getattr(TurnQuestions, name), asked))
    monkeypatch.setattr(figures, "run_verdict_evidence", _watched(run_verdict_evidence, asked))
    f = Filter(run_id="r-mixed")
    with StoreReader(store, wall_clock_ns=lambda: soon, fewest_rolled_up=fewest_rolled_up) as reader:
        goes_on = reader.run_figures("r-mixed", OBJECTIVES)
        assert (goes_on.verdict, goes_on.loss, asked) == (None, None, [])
        summary = reader.summary(f)
        assert goes_on.totals == totals_of(summary)
        assert (goes_on.totals.turns, goes_on.totals.invalid) == (summary.turns.total, summary.turns.invalid)
        assert 0 < goes_on.totals.invalid < goes_on.totals.turns < 240
        assert list(goes_on.processes) == reader.processes("r-mixed")
        # The moment that is given decides, for the limit of the generator too: these processes are lost by then.
        ended = reader.run_figures("r-mixed", OBJECTIVES, later)
        assert ended.verdict is not None
        assert (ended.verdict.state, ended.totals) == ("not_judged", goes_on.totals)
        assert ended.is_generator_limited
        assert "run_verdict_evidence" not in asked, "of what is not judged no cause is looked for"
    with StoreReader(store, wall_clock_ns=lambda: later, fewest_rolled_up=fewest_rolled_up) as reader:
        assert reader.run_figures("r-mixed", OBJECTIVES) == ended
        summary, evidence = reader.summary(f), reader.run_verdict(f, OBJECTIVES)
        assert ended.verdict == judged_turns(OBJECTIVES, evidence.counts, summary, evidence.cause).verdict
        assert reader.run_figures("r-mixed", OBJECTIVES, soon) == goes_on


def _watched(question: Callable[..., object], asked: list[str]) -> Callable[..., object]:
    def watched(*values: object) -> object:
        asked.append(question.__name__)
        return question(*values)

    return watched


def test_the_entry_of_a_run_that_goes_on_has_its_figures_and_no_verdict(tmp_path: Path) -> None:
    store = tmp_path / "store"
    slow = latency_run("r-slow", 60, llm_ms=900)
    fill_store(store, _begun(slow))
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
    judged = judge(OBJECTIVES, found.counts.count)
    assert (entry.state, entry.sentence) == ("missed", run_verdict(OBJECTIVES, judged, cause=found.cause).sentence)
