"""Runs of a store that others write to are read once, and the list is that of a catalog that reads all of them."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from telemetry.model.turns import Turn
from telemetry.objectives.slo import default_objectives
from telemetry.store.run_folders import stored
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.run_folders.entries import RunEntry
from tests.fixtures_turns import START_UNIX_NS, Run, fill_store
from tests.run_folders import HOUR_NS, latency_run

OBJECTIVES = default_objectives()
LATER = START_UNIX_NS + 10 * HOUR_NS
NOW = LATER + HOUR_NS


def run_of(name: str, began_unix_ns: int, calls: int = 40) -> Run:
    """A run whose traces are its own."""
    run = latency_run(name, calls, seed=len(name), began_unix_ns=began_unix_ns)

    def own(turn: Turn) -> Turn:
        return msgspec.structs.replace(turn, trace_id=name.encode().hex().ljust(8, "0")[:8] + turn.trace_id[8:])

    return replace(run, turns=[own(turn) for turn in run.turns])


def part(run: Run, source: str, begin: int = 0, end: int | None = None) -> Run:
    return Run([turn for turn in run.turns if turn.source == source][begin:end])


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were read, one after the other."""
    seen: list[str] = []
    entry = stored._entry

    def counted(*values: object) -> RunEntry:
        found = entry(*values)  # type: ignore[arg-type]
        seen.append(found.run_id)
        return found

    monkeypatch.setattr(stored, "_entry", counted)
    return seen


@pytest.mark.slow
def test_a_run_is_read_again_only_for_what_can_belong_to_it(tmp_path: Path, read: list[str]) -> None:
    store = tmp_path / "store"
    ended, goes_on = run_of("ended", START_UNIX_NS), run_of("goes-on", LATER)
    catalog = RunCatalog([str(store)], OBJECTIVES)

    def listed(*changes: Run) -> list[str]:
        """The runs that a listing reads after changes."""
        fill_store(store, *changes)
        read.clear()
        found = catalog.entries(now_unix_ns=NOW)
        again = list(read)
        assert found == RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=NOW)
        return again

    assert listed(Run([*part(ended, "client").turns, *part(ended, "service", 0, 90).turns], ended.spans)) == ["ended"]
    assert listed(part(goes_on, "client", 0, 40)) == ["goes-on"]
    assert listed(part(goes_on, "client", 40, 80)) == ["goes-on"]
    # What the service says late of turns of the first run changes its figures.
    assert "ended" in listed(part(ended, "service", 90))
    assert listed(part(goes_on, "client", 80), Run([], goes_on.spans)) == ["goes-on"]
    # A view by service and day of the same time may hold the other side of turns.
    late = [msgspec.structs.replace(each, run_id="service:bot:2026-09-21") for each in part(goes_on, "service").turns]
    assert "ended" not in listed(Run(late))


@pytest.mark.slow
def test_other_figures_of_a_run_are_never_those_that_were_kept(tmp_path: Path, read: list[str]) -> None:
    store = tmp_path / "store"
    fill_store(store, run_of("one", START_UNIX_NS), run_of("other", LATER))
    catalog = RunCatalog([str(store)], OBJECTIVES)
    first = catalog.entries(now_unix_ns=NOW)
    fill_store(store, run_of("third", LATER + 2 * HOUR_NS))
    read.clear()
    assert catalog.entries(now_unix_ns=NOW)[1:] == first
    assert read == ["third"]
    # A segment that is damaged afterwards: what is left of each run is read, and nothing else is shown.
    for segment in (store / "segments").glob("turns-*.parquet"):
        content = segment.read_bytes()
        segment.write_bytes(content[: len(content) // 2])
        break
    fill_store(store, run_of("fourth", LATER + 5 * HOUR_NS))
    assert catalog.entries(now_unix_ns=NOW) == RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=NOW)
