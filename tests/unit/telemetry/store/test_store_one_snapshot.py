"""One view is one snapshot: while a writer writes, no two figures of a page's answer disagree."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest

from telemetry.model.errors import StoreError
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import default_objectives
from telemetry.store import wire
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection
from telemetry.store.database import Database
from telemetry.store.questions.cohorts import CohortsQuestion
from telemetry.store.questions.pages import PageQuestion, ViewQuestion
from telemetry.store.questions.turns import TurnSearch, TurnsQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.wire import StoreQuestion
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, START_UNIX_NS, client_turn, fill_store, synthetic_run

OBJECTIVES = tuple(default_objectives())
HEARD = next(objective for objective in OBJECTIVES if objective.metric == "voice_to_voice")
BATCH = 20
BATCHES = 12
ARRIVING = 2  # so many batches arrive during a question


@pytest.mark.slow
def test_no_two_figures_of_a_page_disagree_while_turns_arrive(tmp_path: Path) -> None:
    """Every turn is slow, of one of two cohorts, and shown by every figure: they all count the same turns."""
    store = tmp_path / "store"
    begun, seen, now_unix_ns = threading.Event(), list[int](), [START_UNIX_NS]

    def write() -> None:
        for batch in range(BATCHES):
            turns = [
                client_turn(index, voice_to_voice_ms=900.0, cohort=("a", "b")[index % 2])
                for index in range(batch * BATCH, (batch + 1) * BATCH)
            ]
            now_unix_ns[0] = turns[-1].started_unix_ns
            writer.append(Batch(turns))
            begun.set()

    thread = threading.Thread(target=write)
    with (
        StoreWriter(store) as writer,
        StoreReader(store, wall_clock_ns=lambda: now_unix_ns[0]) as reader,  # its process is at work
    ):
        thread.start()
        begun.wait()
        while thread.is_alive() or not seen:
            page = reader.page(PageQuestion(Filter("run-1"), objectives=OBJECTIVES, with_cause=True))
            assert page.run is not None
            assert page.summary is not None
            assert page.cause is not None
            assert page.explanation is not None
            turns = page.summary.turns.total
            assert page.run.turns == turns
            assert page.counts.count(HEARD) == EligibleTurns(0, turns)
            assert sum(page.counts.of_cohort(cohort).count(HEARD).eligible for cohort in ("a", "b")) == turns
            assert page.summary.metrics["voice_to_voice"].n == turns
            assert page.cause.turns == turns
            assert page.explanation.selected + page.explanation.others == turns
            assert sum(cohort.turns.total for cohort in page.summary.cohorts) == turns
            seen.append(turns)
        thread.join()
    assert seen == sorted(seen)


@contextmanager
def turns_arriving(store: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[StoreReader]:
    """A reader of a store to which more turns come after each of the first statements of every question: a question
    that looked at the store again half-way would find them. Of each batch every second turn is slow, of cohort b and a
    cache hit, and one in five is invalid."""
    execute, snapshot = StoreConnection.execute, Database.snapshot
    batches, left = count(), [0]
    with StoreWriter(store) as writer:

        def arrive() -> None:
            batch = next(batches)
            writer.append(Batch([turn_of(index) for index in range(batch * BATCH, (batch + 1) * BATCH)]))

        def executed(connection: StoreConnection, *asked: Any) -> duckdb.DuckDBPyConnection:
            result = execute(connection, *asked)
            if left[0]:
                left[0] -= 1
                arrive()
            return result

        def asked(database: Database) -> Any:
            left[0] = ARRIVING
            return snapshot(database)

        arrive()
        monkeypatch.setattr(StoreConnection, "execute", executed)
        monkeypatch.setattr(Database, "snapshot", asked)
        with StoreReader(store, wall_clock_ns=lambda: START_UNIX_NS + 250 * SECOND) as reader:
            yield reader


def turn_of(index: int) -> Turn:
    is_second, is_invalid = index % 2 == 1, index % 5 == 4
    return client_turn(
        index,
        voice_to_voice_ms=900.0 if is_second else 500.0,
        cohort="b" if is_second else "a",
        cache_hit=is_second,
        cache_tier="edge" if is_second else None,
        route="cache" if is_second else "cloud",
        receive_stamp="kernel",
        pacer="timerfd",
        outcome="invalid" if is_invalid else "ok",
        outcome_observed="ok" if is_invalid else None,
        invalid_reasons=("frame_lateness",) if is_invalid else (),
    )


def counts_of_turns_page(reader: StoreReader) -> dict[str, int]:
    page = reader.turns_page(TurnsQuestion(Filter("run-1"), search=TurnSearch(from_ns=0), page_size=100))
    assert page.run is not None
    assert page.summary is not None
    return {
        "run": page.run.turns,
        "summary": page.summary.turns.total,
        "searched": page.total,
        "listed": len(page.turns),
        "measured": page.with_value * 5 // 4,
        "heat map": sum(cell.n for cell in page.cells) * 5 // 4,
        "distribution": sum(page.distribution) * 5 // 4,
    }


def counts_of_cohorts_page(reader: StoreReader) -> dict[str, int]:
    page = reader.cohorts_page(CohortsQuestion(ViewQuestion(Filter("run-1"), objectives=OBJECTIVES)))
    assert page.run is not None
    assert page.summary is not None
    assert page.comparison is not None
    sizes = (page.comparison.candidate, page.comparison.control)
    return {
        "run": page.run.turns,
        "summary": page.summary.turns.total,
        "cohorts": sum(cohort.turns.total for cohort in page.summary.cohorts),
        "compared": sum(size.turns for size in sizes),
        "eligible": sum(size.turns - size.invalid for size in sizes) * 5 // 4,
    }


def counts_of_cache_page(reader: StoreReader) -> dict[str, int]:
    page = reader.cache_page(ViewQuestion(Filter("run-1")))
    assert page.run is not None
    assert page.summary is not None
    cache = page.cache
    return {
        "run": page.run.turns,
        "summary": page.summary.turns.total,
        "cache": cache.turns * 5 // 4,
        "hits": cache.hits * 5 // 2,
        "tiers": sum(map(sum, cache.tiers.counts.values())) * 5 // 4,
        "routes": sum(group.turns for group in cache.waits["route"]) * 5 // 4,
    }


def counts_of_instrument_page(reader: StoreReader) -> dict[str, int]:
    page = reader.instrument_page(ViewQuestion(Filter("run-1")))
    assert page.run is not None
    assert page.summary is not None
    instrument = page.instrument
    return {
        "run": page.run.turns,
        "summary": page.summary.turns.total,
        "stamps": instrument.stamps["kernel"],
        "pacers": instrument.pacers["timerfd"],
        "invalid": sum(map(sum, instrument.invalid.counts.values())) * 5,
        "received": sum(process.received for process in instrument.loss),
    }


def counts_of_several(reader: StoreReader) -> dict[str, int]:
    runs, points, turns = reader.together(
        StoreReader.runs.of(),
        StoreReader.timeline.of(Filter("run-1")),
        StoreReader.turns.of(Filter("run-1")),
    )
    return {
        "runs": runs[0].turns,
        "timeline": sum(point.n for point in points) * 5 // 4,
        "turns": len(turns),
    }


def counts_of_objectives_page(reader: StoreReader) -> dict[str, int]:
    page = reader.objectives_page([HEARD])
    burn = page.burn
    (budget,) = burn.budgets
    (run,) = page.runs
    assert page.evidence.loss is not None
    assert page.choices["cohort"] == ("a", "b")
    assert burn.newest_unix_ns is not None
    return {
        **{window.window: window.counts.eligible for window in budget.windows},
        "days": sum(day.counts.eligible for day in budget.days),
        "run": run.turns,
        "counted": burn.counted.total,
        "invalid": burn.counted.invalid * 5,
        "received": page.evidence.loss.received,
        "newest": (burn.newest_unix_ns - START_UNIX_NS) // SECOND + 2,  # the last of each batch is invalid
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "counts",
    [
        counts_of_turns_page,
        counts_of_cohorts_page,
        counts_of_cache_page,
        counts_of_instrument_page,
        counts_of_objectives_page,
        counts_of_several,
    ],
)
def test_every_figure_of_answer_counts_turns_of_one_moment(
    counts: Callable[[StoreReader], dict[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with turns_arriving(tmp_path, monkeypatch) as reader:
        for question in range(3):
            known = BATCH * (1 + ARRIVING * question)
            current = counts(reader)
            assert current == dict.fromkeys(current, known)


@pytest.mark.slow
def test_question_that_exceeds_memory_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_store(tmp_path, synthetic_run("r", 4))

    def too_much(connection: StoreConnection) -> Any:
        statement = "SELECT len(list(i || repeat('-', 200))) FROM range(20000000) r(i)"
        return connection.execute(statement).fetchall()

    # A question is known from its declaration on: not to the tests after this one.
    monkeypatch.setattr(wire, "_questions", wire._questions.copy())
    monkeypatch.setattr(StoreReader, "runs", StoreQuestion(too_much))
    with StoreReader(tmp_path) as asked, pytest.raises(StoreError, match="too many turns for one answer") as refused:
        asked.runs()
    assert "narrow it by time" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert "SET " not in str(refused.value)
