"""Which rows that come to a store are a reason to read a run of its list again, and which are none."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from telemetry.model.generator_health import gauge_metric
from telemetry.objectives.slo import default_objectives
from telemetry.store.point_rows import PointRow
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.catalog import RunCatalog
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, fill_store
from tests.run_folders import HOUR_NS, part, run_of, watched_entries

OBJECTIVES = default_objectives()
NOW = START_UNIX_NS + 11 * HOUR_NS


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were read, one after the other."""
    return watched_entries(monkeypatch)


def _gauge(run_id: str, at_unix_ns: int, value: float) -> PointRow:
    attributes = {"run_id": run_id, "process_id": f"{run_id}-worker-0"}
    return PointRow(gauge_metric("calls_in_flight"), at_unix_ns, value, attributes)


@pytest.mark.slow
def test_rows_of_another_run_at_the_same_time_are_no_reason_to_read_a_run_again(
    tmp_path: Path, read: list[str]
) -> None:
    store = tmp_path / "store"
    fill_store(store, run_of("ended", START_UNIX_NS))
    catalog = RunCatalog([str(store)], OBJECTIVES)
    began_unix_ns = START_UNIX_NS + 600 * SECOND
    beside = run_of("beside", began_unix_ns, 20)
    assert [each.run_id for each in catalog.entries(now_unix_ns=NOW)] == ["ended"]

    def listed(change: Run) -> list[str]:
        fill_store(store, change)
        read.clear()
        found = catalog.entries(now_unix_ns=NOW)
        again = list(read)
        assert found == RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=NOW)
        return again

    assert listed(Run(part(beside, "client").turns, beside.spans)) == ["beside"]
    assert listed(part(beside, "service")) == ["beside"]
    assert listed(Run([], [], [_gauge("beside", began_unix_ns, 5)])) == ["beside"]
    days = [
        msgspec.structs.replace(each, run_id="service:bot:2026-09-21", span_id=each.span_id[::-1], process_id="bot")
        for each in beside.turns[1:21:2]
    ]
    assert listed(Run(days)) == ["service:bot:2026-09-21"]
    # What is of the run itself is a reason, whatever it is.
    assert "ended" in listed(Run([], [], [_gauge("ended", began_unix_ns, 5)]))
    (span, *_) = beside.spans
    late = {**span.attributes, "voice.run.run_id": "ended", "voice.run.process_id": "late", "voice.run.phase": "end"}
    assert "ended" in listed(Run([], [replace(span, span_id="00000000000000aa", attributes=late)]))
    assert listed(Run([], [replace(span, span_id="00000000000000bb", name="other", attributes={})])) == []


@pytest.mark.slow
def test_numbers_that_a_process_gave_in_another_run_are_a_reason_to_read_a_run_again(
    tmp_path: Path, read: list[str]
) -> None:
    store = tmp_path / "store"
    run = run_of("ended", START_UNIX_NS, 100)
    lost = [each for each in run.turns if each.source == "client" and 20 <= (each.sequence or 0) < 60]
    fill_store(store, Run([each for each in run.turns if each not in lost], run.spans))
    catalog = RunCatalog([str(store)], OBJECTIVES)
    (entry,) = catalog.entries(now_unix_ns=NOW)
    assert entry.state == "undecided", "so many turns are lost"
    others = [
        msgspec.structs.replace(each, trace_id=each.trace_id[::-1], sequence=(each.sequence or 0) + 200)
        for each in lost
    ]
    # Numbers beyond the run's last one tell nothing of it; those that it lacks do.
    for turns, again, state in ((others, False, "undecided"), (lost, True, "met")):
        named = [msgspec.structs.replace(each, run_id="other") for each in turns]
        fill_store(store, Run(named))
        read.clear()
        found = catalog.entries(now_unix_ns=NOW)
        assert ("ended" in read) is again
        assert next(each.state for each in found if each.run_id == "ended") == state
        assert found == RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=NOW)


@pytest.mark.slow
def test_what_is_declared_of_a_run_later_is_a_reason_to_read_it_again(tmp_path: Path, read: list[str]) -> None:
    store = tmp_path / "store"
    run = run_of("ended", START_UNIX_NS)
    asked = "voice.run.processes"
    spans = [replace(each, attributes={**each.attributes, asked: "2"}) for each in run.spans]
    fill_store(store, Run(run.turns, spans))
    catalog = RunCatalog([str(store)], OBJECTIVES)
    (before,) = catalog.entries(now_unix_ns=NOW)
    assert before.state == "met"
    # Its record stays the same, as the processes declare another number at their end.
    at_unix_ns = spans[0].start_unix_ns + SECOND
    late = replace(spans[0], span_id="00000000000000aa", start_unix_ns=at_unix_ns, end_unix_ns=at_unix_ns)
    with StoreReader(store) as reader:
        record = reader.runs()
    fill_store(store, Run([], [replace(late, attributes={**late.attributes, asked: "9"})]))
    with StoreReader(store) as reader:
        assert reader.runs() == record
    read.clear()
    (after,) = catalog.entries(now_unix_ns=NOW)
    assert (read, after.state) == (["ended"], "not judged")
    assert [after] == RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=NOW)
