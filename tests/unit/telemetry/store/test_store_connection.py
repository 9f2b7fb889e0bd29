"""Which segments a question looks at, and that it finds all that it is about among them."""

import errno
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.store import manifest as manifests
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection, near, rows
from telemetry.store.reader import StoreReader
from telemetry.store.run_catalog import catalog
from telemetry.store.segment_checks import SegmentChecks
from tests.fixtures_turns import MS, SECOND, START_UNIX_NS, Run, exchange, fill_store, synthetic_run

DAY = 86_400 * SECOND


def later(run: Run, by_ns: int) -> Run:
    """The same turns at another time."""
    return Run([msgspec.structs.replace(turn, started_unix_ns=turn.started_unix_ns + by_ns) for turn in run.turns])


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[StoreConnection]:
    runs = [later(synthetic_run(f"run-{day}", turns=12, seed=day), day * DAY) for day in range(4)]
    store = fill_store(tmp_path, *runs)
    connection = StoreConnection(store, SegmentChecks(store)).read(manifests.load(store).segments)
    yield connection
    connection.close()


def test_a_question_about_a_run_looks_at_the_segments_that_hold_it(connection: StoreConnection) -> None:
    assert len(connection.segments("turns")) == 4
    (only,) = connection.segments("turns", "run-2")
    assert only.run_ids == ("run-2",)
    for run_id, count in ((None, 4), ("run-2", 1), ("nobody", 0), (None, 4)):
        found = rows(connection.about(run_id), "SELECT count(DISTINCT run_id) AS n, count(*) AS turns FROM turns")
        assert found == [{"n": count, "turns": 24 * count}]


def test_a_segment_of_unknown_runs_may_hold_any(connection: StoreConnection) -> None:
    of_many = [msgspec.structs.replace(each, run_ids=None) for each in connection.segments("turns")]
    connection.read(of_many)
    assert len(connection.segments("turns", "run-2")) == 4
    found = rows(connection.about("run-2"), "SELECT count(*) AS n FROM turns WHERE run_id = 'run-2'")
    assert found == [{"n": 24}]


def test_near_are_the_segments_of_about_the_same_time(connection: StoreConnection) -> None:
    segments = connection.segments("turns")
    assert near(segments, START_UNIX_NS + DAY, START_UNIX_NS + DAY + SECOND) == [segments[1]]
    assert near(segments, START_UNIX_NS, START_UNIX_NS + 2 * DAY) == segments[:3]
    assert near(segments, START_UNIX_NS + DAY // 2, START_UNIX_NS + DAY // 2) == []
    assert near(segments, None, None) == []


def test_what_is_asked_of_each_segment_is_asked_once(
    connection: StoreConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = catalog(connection)
    assert {row.run_id for row in first} == {f"run-{day}" for day in range(4)}
    asked: list[str] = []
    execute = StoreConnection.execute

    def heard(self: StoreConnection, statement: str, values: Sequence[Any] | None = None) -> Any:
        asked.append(statement)
        return execute(self, statement, values)

    monkeypatch.setattr(StoreConnection, "execute", heard)
    assert catalog(connection) == first
    assert asked == []
    connection.read(connection.segments("turns")[1:])
    assert {row.run_id for row in catalog(connection)} == {"run-1", "run-2", "run-3"}
    assert asked == []


def test_a_service_that_does_not_know_the_run_is_found_beside_its_client(tmp_path: Path) -> None:
    pairs = [exchange(index, run_id="run-1", network_ms=6.0) for index in range(30)]
    strangers = [msgspec.structs.replace(service, run_id="") for _, service in pairs]
    store = fill_store(tmp_path, Run([client for client, _ in pairs]), Run(strangers), later(Run(strangers), DAY))
    with StoreReader(store) as reader:
        delta = reader.summary(Filter(run_id="run-1")).client_service_delta
    assert (delta.joined, delta.client_only, delta.service_only) == (30, 0, 0)
    assert delta.difference_p50_ns == 6 * MS


@pytest.mark.slow
def test_a_process_that_outlives_its_runs_lacks_what_is_missing_between_a_runs_numbers(tmp_path: Path) -> None:
    def of(run_id: str, sequences: range, *missing: int) -> Run:
        turns = [exchange(index, run_id=run_id)[1] for index in sequences if index not in missing]
        return Run([msgspec.structs.replace(t, process_id="assistant") for t in turns])

    # Runs 1 and 2 share the numbers 30 to 39; 7 and 52 are lost; run 3 begins with 70.
    store = fill_store(
        tmp_path,
        of("run-1", range(0, 40, 1), 7, *range(30, 40, 2)),
        of("run-2", range(30, 60, 1), *range(31, 40, 2), 52),
        of("run-3", range(70, 80)),
    )
    with StoreReader(store) as reader:
        missing = [reader.summary(Filter(run_id=f"run-{number}")).loss.missing for number in (1, 2, 3)]
        received = [reader.summary(Filter(run_id=f"run-{number}")).loss.received for number in (1, 2, 3)]
    # Up to its last number, 39, run 1 lacks 7; run 2, from 30 to 59, lacks 52; run 3 begins where it began.
    assert missing == [1, 1, 0]
    assert received == [34, 24, 10]


def test_a_file_that_could_not_be_opened_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill_store(tmp_path, synthetic_run("run-1", turns=6), synthetic_run("run-2", turns=6))
    sound = manifests.is_intact
    with StoreReader(store) as reader, monkeypatch.context() as patch:

        def starved(directory: Path, segment: manifests.Segment) -> bool:
            if segment.run_ids == ("run-1",):
                raise OSError(errno.EMFILE, "Too many open files")
            return sound(directory, segment)

        patch.setattr(manifests, "is_intact", starved)
        assert [run.run_id for run in reader.runs() if run.turns] == ["run-2"]
        assert ["rows of turns left out, Too many open files" in fault for fault in reader.faults] == [True]
        assert reader.summary().skipped_segments == 2
        assert ["Too many open files" in fault for fault in reader.faults] == [True, True]
        patch.undo()
        assert {run.run_id for run in reader.runs() if run.turns} == {"run-1", "run-2"}
        assert reader.faults == ()


# Asks what a run, a report and a page ask, and prints whether pandas came with it.
_ASKS = """
import sys
from telemetry.store.pages import PageQuestion
from telemetry.store.reader import StoreReader
with StoreReader(sys.argv[1]) as reader:
    assert reader.summary().turns.total and reader.runs() and reader.turns() and reader.page(PageQuestion()).runs
print("pandas" in sys.modules)
"""


@pytest.mark.slow
def test_a_process_that_reads_a_store_imports_no_pandas(tmp_path: Path) -> None:
    store = fill_store(tmp_path, synthetic_run("run-1", turns=12))
    done = subprocess.run([sys.executable, "-c", _ASKS, store], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


# Asks the same from roll-ups, where pyarrow would import it.
_REFUSES = """
import sys
from telemetry.store.pages import PageQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.without_pandas import refuse_pandas
refuse_pandas()
with StoreReader(sys.argv[1], fewest_rolled_up=0) as reader:
    print(reader.summary().turns.total, len(reader.page(PageQuestion()).runs), "pandas" in sys.modules)
try:
    import pandas
except ModuleNotFoundError as error:
    print(error.name)
"""


@pytest.mark.slow
def test_a_process_that_refuses_pandas_answers_from_roll_ups(tmp_path: Path) -> None:
    store = fill_store(tmp_path, synthetic_run("run-1", turns=12))
    with StoreReader(store) as reader:
        expected = str(reader.summary().turns.total)
    done = subprocess.run([sys.executable, "-c", _REFUSES, store], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected, "1", "False", "pandas"]
