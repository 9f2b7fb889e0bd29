"""The list of runs of a store: the same as the questions about each run by themselves, and as SQL by hand."""

from pathlib import Path

import msgspec
import pytest

from telemetry.objectives.observable import observed
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import Filter
from telemetry.store.database import read_only
from telemetry.store.questions.run_figures import ListedRun
from telemetry.store.questions.verdicts import judged_turns, measured_s
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.catalog import RunCatalog
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, client_turn, fill_store, synthetic_run
from tests.run_folders import HOUR_NS, latency_run, run_of

OBJECTIVES = tuple(default_objectives())
NOW = START_UNIX_NS + 20 * HOUR_NS


def _unreached(run_id: str) -> Run:
    """A run of which no call reached a session."""
    failed = [
        client_turn(
            index,
            voice_to_voice_ms=None,
            run_id=run_id,
            call_id=f"{run_id}-{index}",
            span_id=f"dead{index:012x}",
            outcome="error",
            outcome_reason="refused",
            connect_ns=None,
            started_unix_ns=START_UNIX_NS + 9 * HOUR_NS + index,
        )
        for index in range(30)
    ]
    return Run(failed)


def _lossy(run: Run) -> Run:
    """A run of which some turns did not arrive."""
    return Run([turn for turn in run.turns if turn.sequence is None or turn.sequence % 10], run.spans)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("figures") / "store"
    return fill_store(
        store,
        run_of("r-one", START_UNIX_NS, 120),
        latency_run("r-two", 120, llm_ms=900, seed=3, began_unix_ns=START_UNIX_NS + HOUR_NS),
        run_of("r-few", START_UNIX_NS + 2 * HOUR_NS, 5),
        _lossy(run_of("r-lossy", START_UNIX_NS + 3 * HOUR_NS, 60)),
        synthetic_run("r-mixed", 240),
        _begun(run_of("r-lost", START_UNIX_NS + 4 * HOUR_NS, 40)),
        _unreached("r-dead"),
    )


def _begun(run: Run) -> Run:
    """A run that has not announced its end."""
    return Run(run.turns, [span for span in run.spans if span.attributes.get("voice.run.phase") != "end"])


@pytest.mark.slow
def test_run_list_has_figures_and_verdict_of_single_questions(store: Path) -> None:
    with StoreReader(store, wall_clock_ns=lambda: NOW) as reader:
        listed = reader.run_list(OBJECTIVES)
        assert [entry.run for entry in listed] == [run for run in reader.runs() if run.turns or run.declared]
        states = {entry.run.run_id: entry.verdict.state for entry in listed if entry.verdict is not None}
        assert states.keys() >= {"r-one", "r-two", "r-few", "r-lossy", "r-mixed", "r-lost", "r-dead"}
        assert set(states.values()) == {"met", "missed", "undecided", "not_judged"}
        for entry in listed:
            _check(entry, reader)


def _check(listed_run: ListedRun, reader: StoreReader) -> None:
    f = Filter(run_id=listed_run.run.run_id)
    summary, counts = reader.summary(f), reader.objective_counts(f, OBJECTIVES)
    stats = summary.metrics["voice_to_voice"]
    assert (listed_run.turns, listed_run.invalid) == (summary.turns.total, summary.turns.invalid)
    assert (listed_run.p50, listed_run.p95, listed_run.p99) == (stats.p50, stats.p95, stats.p99)
    assert listed_run.cohorts == tuple(sorted(cohort.cohort for cohort in summary.cohorts))
    assert (listed_run.loss, listed_run.is_generator_limited) == (summary.loss, summary.limit is not None)
    objectives = observed(OBJECTIVES, counts.is_withheld)
    expected = judged_turns(objectives, counts, summary, measured_s=measured_s(summary, listed_run.run))
    assert listed_run.verdict == expected.verdict, listed_run.run.run_id


@pytest.mark.slow
def test_running_run_is_not_judged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    # Turns of ramps, silent, invalid and cut ones too: all that figures leave out.
    mixed = synthetic_run("r-mixed", 240)
    silent = [msgspec.structs.replace(turn, turn_kind="silence") for turn in mixed.turns[:40]]
    ramps = [msgspec.structs.replace(turn, phase="up", phase_kind="ramp") for turn in mixed.turns[40:90]]
    fill_store(store, Run([*silent, *ramps, *mixed.turns[90:]], _begun(mixed).spans))
    last_unix_ns = max(turn.started_unix_ns for turn in mixed.turns if turn.source == "client")
    soon, later = last_unix_ns + 5 * SECOND, last_unix_ns + HOUR_NS
    with StoreReader(store, wall_clock_ns=lambda: soon) as reader:
        goes_on = next(entry for entry in reader.run_list(OBJECTIVES) if entry.run.run_id == "r-mixed")
        assert (goes_on.verdict, goes_on.loss, goes_on.is_generator_limited) == (None, None, False)
        summary = reader.summary(Filter(run_id="r-mixed"))
        assert (goes_on.turns, goes_on.invalid) == (summary.turns.total, summary.turns.invalid)
        assert 0 < goes_on.invalid < goes_on.turns < 240
        # The moment that is given decides, for the limit of the generator too: these processes are lost by then.
        ended = next(entry for entry in reader.run_list(OBJECTIVES, later) if entry.run.run_id == "r-mixed")
        assert ended.verdict is not None
        assert (ended.verdict.state, ended.turns, ended.is_generator_limited) == ("not_judged", goes_on.turns, True)


@pytest.mark.slow
def test_entry_of_running_run_has_figures_and_no_verdict(tmp_path: Path) -> None:
    store = tmp_path / "store"
    slow = latency_run("r-slow", 60, llm_ms=900)
    fill_store(store, _begun(slow))
    now = max(turn.started_unix_ns for turn in slow.turns if turn.source == "client") + 5 * SECOND
    (entry,) = RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=now)
    assert (entry.state, entry.sentence) == ("under way", "the run is under way")
    with read_only(store) as database, database.snapshot() as cursor:
        by_hand = cursor.execute(
            "SELECT count(*), count(*) FILTER (WHERE outcome = 'invalid'),"
            " quantile_cont(voice_to_voice_ns, [0.5, 0.95]) FILTER (WHERE outcome <> 'invalid')"
            " FROM turns WHERE run_id = 'r-slow' AND source = 'client'"
        ).fetchone()
    assert by_hand is not None
    assert (entry.turns, entry.invalid, [entry.p50_ns, entry.p95_ns]) == by_hand
    # The same turns of a run that has announced its end are judged; a report looks for the cause of a miss.
    fill_store(store, Run([], [span for span in slow.spans if span.attributes["voice.run.phase"] == "end"]))
    (entry,) = RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=now)
    assert (entry.state, entry.sentence[:25]) == ("missed", "Missing the objective “Th")
