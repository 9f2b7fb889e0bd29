"""One view is one snapshot: while a writer writes, no two figures of a page's answer disagree."""

import threading
from pathlib import Path

import pytest

from telemetry.model.errors import StoreError
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import Filter
from telemetry.store.pages import PageQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.snapshot import Snapshots
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import START_UNIX_NS, client_turn, fill_store, synthetic_run

OBJECTIVES = tuple(default_objectives())
HEARD = next(objective for objective in OBJECTIVES if objective.metric == "voice_to_voice")
BATCH = 20
BATCHES = 12


def test_no_two_figures_of_a_page_disagree_while_turns_arrive(tmp_path: Path) -> None:
    """Every turn is slow, of one of two cohorts, and shown by every figure: they all count the same turns."""
    store = tmp_path / "store"
    begun, seen = threading.Event(), list[int]()

    def write() -> None:
        with StoreWriter(store) as writer:
            for batch in range(BATCHES):
                turns = [
                    client_turn(index, voice_to_voice_ms=900.0, cohort=("a", "b")[index % 2])
                    for index in range(batch * BATCH, (batch + 1) * BATCH)
                ]
                writer.append(Batch(turns))
                begun.set()

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait()
    with StoreReader(store, wall_clock_ns=lambda: START_UNIX_NS) as reader:  # its process is at work
        while thread.is_alive() or not seen:
            page = reader.page(PageQuestion(Filter("run-1"), objectives=OBJECTIVES, with_cause=True))
            assert page.run is not None
            assert page.summary is not None
            assert page.cause is not None
            assert page.explanation is not None
            turns = page.summary.turns.total
            assert page.run.turns == turns
            assert page.counts.count(HEARD) == (0, turns)
            assert sum(page.counts.of_cohort(cohort).count(HEARD)[1] for cohort in ("a", "b")) == turns
            assert page.summary.metrics["voice_to_voice"].n == turns
            assert sum(point.n for point in page.timeline) == turns
            assert page.cause.turns == turns
            assert page.explanation.selected + page.explanation.others == turns
            assert sum(cohort.turns.total for cohort in page.summary.cohorts) == turns
            seen.append(turns)
    thread.join()
    assert seen == sorted(seen)


def test_a_question_that_needs_too_much_memory_is_refused_in_one_sentence(tmp_path: Path) -> None:
    fill_store(tmp_path, synthetic_run("r", 4))
    too_much = "SELECT len(list(i || repeat('-', 200))) FROM range(20000000) r(i)"
    with pytest.raises(StoreError, match="too many turns for one answer, narrow it by time") as refused:
        Snapshots(tmp_path).ask(lambda connection: connection.execute(too_much).fetchall())
    assert len(str(refused.value).splitlines()) == 1
    assert "SET " not in str(refused.value)
