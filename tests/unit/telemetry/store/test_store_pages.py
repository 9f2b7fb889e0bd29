"""A page is one question, answered as its parts would be."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from telemetry.model.errors import StoreError
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import Filter
from telemetry.store.questions.pages import PageQuestion
from telemetry.store.questions.turns import TurnsQuestion
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, fill_store, synthetic_run

NOW = START_UNIX_NS + 10_000 * SECOND
OBJECTIVES = tuple(default_objectives())


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    later = synthetic_run("run-2", turns=90, seed=2, ended=False)
    turns = [msgspec.structs.replace(t, started_unix_ns=t.started_unix_ns + 500 * SECOND) for t in later.turns]
    store = fill_store(
        tmp_path_factory.mktemp("store"), synthetic_run("run-1", turns=240), Run(turns, [], later.points)
    )
    with StoreReader(store, wall_clock_ns=lambda: NOW) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize(
    ("f", "window_s"),
    [
        (Filter(run_id="run-1"), None),
        (Filter(run_id="run-1", cohort="streaming", noise_profile="babble"), None),
        (Filter(run_id="run-1", length_class="short"), 60),
        (Filter(run_id="run-2", route="cache"), None),
        (Filter(run_id="run-2", cohort="nobody"), None),
    ],
)
def test_a_page_is_what_each_question_answers(reader: StoreReader, f: Filter, window_s: int | None) -> None:
    window_ns = None if window_s is None else window_s * SECOND
    answer = reader.page(PageQuestion(f, window_ns, objectives=OBJECTIVES, slowest=3))
    assert answer.runs == reader.runs()
    assert answer.run is not None
    assert answer.summary is not None
    assert answer.run == next(run for run in answer.runs if run.run_id == f.run_id)
    if window_ns is not None:
        f = Filter(run_id=f.run_id, length_class=f.length_class, since_unix_ns=answer.run.last_unix_ns - window_ns)
    assert answer.head.filter == f
    assert answer.summary == reader.summary(f)
    assert answer.budget == reader.stage_budget(f)
    assert answer.slowest == reader.slowest(f, "voice_to_voice", 3)
    assert answer.counts == reader.objective_counts(f, OBJECTIVES)
    # To choose from is all that the run has, whatever the page is narrowed to.
    assert answer.choices == reader.dimension_values(Filter(run_id=f.run_id))
    assert reader.turns_page(TurnsQuestion(f)).choices == answer.choices


@pytest.mark.slow
def test_the_newest_run_is_meant_when_none_is_named(reader: StoreReader) -> None:
    answer = reader.page(PageQuestion())
    assert answer.run is not None
    assert (answer.run.run_id, answer.head.filter) == ("run-2", Filter(run_id="run-2"))


@pytest.mark.slow
def test_a_run_that_is_not_there_is_not_replaced(reader: StoreReader, tmp_path: Path) -> None:
    answer = reader.page(PageQuestion(Filter(run_id="gone")))
    assert (answer.run, answer.summary, len(answer.runs)) == (None, None, 2)
    with pytest.raises(StoreError, match="there is no metric 'speed'"):
        reader.page(PageQuestion(metric="speed"))
    with StoreReader(fill_store(tmp_path / "empty")) as empty:
        assert empty.page(PageQuestion()).run is None


# Asks what a run, a report and a page ask, and prints whether pandas came with it.
_ASKS = """
import sys
from telemetry.store.questions.pages import PageQuestion
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
