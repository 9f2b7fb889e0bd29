"""Runs of a store that others write to are read once, and the list is that of a catalog that reads all of them."""

from pathlib import Path

import msgspec
import pytest

from telemetry.objectives.slo import default_objectives
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.manifest import Removed, load
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders import catalog as catalogs
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.run_folders.known_runs import _StoreMoment
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import START_UNIX_NS, Run, fill_store
from tests.run_folders import HOUR_NS, part, run_of, watched_entries, write_summary

OBJECTIVES = default_objectives()
LATER = START_UNIX_NS + 10 * HOUR_NS
NOW = LATER + HOUR_NS


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were read, one after the other."""
    return watched_entries(monkeypatch)


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


def _stored(store: Path, run: Run, *, at_unix_ns: int = NOW) -> None:
    """Turns and spans, each an append of its own, at a moment of the writer's clock."""
    with StoreWriter(store, unix_ns=lambda: at_unix_ns) as writer:
        writer.append(Run(run.turns).batch)
        if run.spans:
            writer.append(Run([], run.spans).batch)


def _merge(store: Path, fan_in: int) -> int:
    with StoreWriter(store) as writer:
        compactor = Compactor(writer, limits=MergeLimits(fan_in=fan_in))
        merges = 0
        while compactor.run_once():
            merges += 1
        compactor.stop()
    return merges


@pytest.mark.slow
def test_merged_segments_are_no_reason_to_read_a_run_again(tmp_path: Path, read: list[str]) -> None:
    store = tmp_path / "store"
    ended = run_of("ended", START_UNIX_NS)
    for begin in (0, 40):
        _stored(store, part(ended, "client", begin, begin + 40))
    _stored(store, Run([*part(ended, "client", 80).turns, *part(ended, "service", 0, 90).turns], ended.spans))
    catalog = RunCatalog([str(store)], OBJECTIVES)

    def listed() -> list[str]:
        read.clear()
        found = catalog.entries(now_unix_ns=NOW)
        again = list(read)
        assert found == RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=NOW)
        return again

    assert listed() == ["ended"]
    assert _merge(store, 3) == 1
    assert listed() == []
    # Rows that are merged before anybody looks again are found by the moment at which they were stored.
    for begin in (90, 100):
        _stored(store, part(ended, "service", begin, begin + 10), at_unix_ns=NOW + 1)
    assert _merge(store, 2) >= 1
    assert listed() == ["ended"]
    # And of a clock that was set back, by their number.
    for begin in (110, 115):
        _stored(store, part(ended, "service", begin, begin + 5), at_unix_ns=NOW - HOUR_NS)
    assert _merge(store, 2) >= 1
    assert listed() == ["ended"]
    assert listed() == []


@pytest.mark.slow
def test_a_run_is_read_again_when_rows_of_it_were_removed(tmp_path: Path, read: list[str]) -> None:
    store = tmp_path / "store"
    ended = run_of("ended", START_UNIX_NS)
    for begin in (0, 40, 80):
        _stored(store, part(ended, "client", begin, begin + 40))
    _stored(store, Run(part(ended, "service").turns, ended.spans))
    catalog = RunCatalog([str(store)], OBJECTIVES)
    (before,) = catalog.entries(now_unix_ns=NOW)
    with StoreWriter(store) as writer:
        writer.remove([next(each for each in writer.manifest.of("turns"))])
    assert _merge(store, 3) == 1
    read.clear()
    (after,) = catalog.entries(now_unix_ns=NOW)
    assert read == ["ended"]
    assert after.turns == before.turns - 40


def test_rows_that_went_and_came_are_seen(tmp_path: Path) -> None:
    """A moment of a store is told from a later one though neither files nor numbers of rows show all of it."""
    store = tmp_path / "store"
    ended = run_of("ended", START_UNIX_NS)
    for begin in (0, 40):
        _stored(store, part(ended, "client", begin, begin + 40))
    then = load(store)
    moment = _StoreMoment(then)
    assert moment.only_grew_to(then)
    turns = list(then.of("turns"))
    merged = msgspec.structs.replace(turns[0], file="turns-000000009-00000000.parquet", rows=80, level=1)
    assert moment.held(merged)
    for rows, grew in ((80, True), (81, False), (79, False)):
        now = msgspec.structs.replace(then, segments=(msgspec.structs.replace(merged, rows=rows),))
        assert moment.only_grew_to(now) is grew, rows
    assert not moment.held(msgspec.structs.replace(merged, stored_unix_ns=NOW + 1))
    assert not moment.held(msgspec.structs.replace(merged, level=0))
    removed = {"turns": Removed(segments=1, rows=1)}
    assert not moment.only_grew_to(msgspec.structs.replace(then, removed=removed))


def _several(store: Path) -> int:
    """Three runs that ended, hours apart, without their last service turns, and one that goes on; the moment now."""
    for place, name in enumerate(("a", "bb", "ccc")):
        ended = run_of(name, START_UNIX_NS + place * 3 * HOUR_NS, 20)
        fill_store(store, Run([*part(ended, "client").turns, *part(ended, "service", 0, 40).turns], ended.spans))
    goes_on = run_of("goes-on", LATER, 20)
    fill_store(store, Run(goes_on.turns, goes_on.spans[::2]))
    return max(each.started_unix_ns for each in goes_on.turns) + 5_000_000_000


@pytest.mark.slow
def test_runs_that_take_long_to_read_follow_and_what_goes_on_is_always_read(tmp_path: Path, read: list[str]) -> None:
    store = tmp_path / "store"
    now = _several(store)
    catalog = RunCatalog([str(store)], OBJECTIVES)

    def listed() -> tuple[list[str], list[str], int]:
        read.clear()
        found = catalog.listing(within_s=0, now_unix_ns=now)
        return list(read), [each.run_id for each in found.entries], found.unread_runs

    assert listed() == (["goes-on"], ["goes-on"], 3)
    assert listed() == (["goes-on", "ccc"], ["goes-on", "ccc"], 2)
    assert listed() == (["goes-on", "bb"], ["goes-on", "ccc", "bb"], 1)
    # A run that is written to does not wait, whatever else has not been read.
    more = part(run_of("bb", START_UNIX_NS + 3 * HOUR_NS, 21), "client", 60)
    fill_store(store, more)
    assert "bb" in listed()[0]
    assert listed()[2] == 0
    assert listed() == (["goes-on"], ["goes-on", "ccc", "bb", "a"], 0)
    whole = RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=now)
    assert catalog.listing(within_s=0, now_unix_ns=now).entries == whole
    assert [each.state == "under way" for each in whole] == [True, False, False, False]


@pytest.mark.slow
def test_ended_runs_with_later_rows_are_read_again_in_turn(tmp_path: Path, read: list[str]) -> None:
    store = tmp_path / "store"
    now = _several(store)
    catalog = RunCatalog([str(store)], OBJECTIVES)
    before = catalog.entries(now_unix_ns=now)
    for place, name in enumerate(("a", "bb")):
        fill_store(store, part(run_of(name, START_UNIX_NS + place * 3 * HOUR_NS, 20), "service", 40))
    whole = RunCatalog([str(store)], OBJECTIVES).entries(now_unix_ns=now)
    read.clear()
    first = catalog.listing(within_s=0, now_unix_ns=now)
    assert read == ["goes-on", "bb"], "they were read newest first"
    assert first.entries == [whole[0], before[1], whole[2], before[3]]
    assert (first.unread, first.unread_runs) == ([], 0)
    assert first.outdated == {before[3].reference}, "its figures are former ones"
    read.clear()
    second = catalog.listing(within_s=0, now_unix_ns=now)
    assert (second.entries, second.outdated) == (whole, set())
    assert read == ["goes-on", "a"]


@pytest.mark.slow
def test_of_a_store_that_has_to_wait_the_runs_with_later_rows_are_named(tmp_path: Path, read: list[str]) -> None:
    stores = [tmp_path / "one", tmp_path / "other"]
    now = max(_several(store) for store in stores)
    catalog = RunCatalog([str(store) for store in stores], OBJECTIVES)
    before = {each.reference: each for each in catalog.entries(now_unix_ns=now)}
    last = catalog.listing(within_s=0, now_unix_ns=now)
    assert (last.outdated, len(last.entries)) == (set(), len(before))
    # At each look there is time for one store, and the next one is for the store that was read longest ago.
    fill_store(stores[1], part(run_of("a", START_UNIX_NS, 20), "service", 40))
    fill_store(stores[1], run_of("beside-bb", START_UNIX_NS + 3 * HOUR_NS, 5))
    changed = f"{stores[1]}#a"
    marked: list[bool] = []
    is_read = False
    for _ in range(5):
        read.clear()
        look = catalog.listing(within_s=0, now_unix_ns=now)
        is_read = is_read or "a" in read
        assert look.outdated == (set() if is_read else {changed})
        assert {each.reference for each in look.entries} >= set(before)
        marked.append(not is_read)
    assert (marked[0], marked[-1]) == (True, False), "it had to wait, and was read then"
    whole = RunCatalog([str(store) for store in stores], OBJECTIVES).entries(now_unix_ns=now)
    assert look.entries == whole


@pytest.mark.slow
def test_a_run_with_a_summary_is_not_read_from_its_store(tmp_path: Path, read: list[str]) -> None:
    folder = tmp_path / "capacity"
    fill_store(folder / "store", run_of("step-1", START_UNIX_NS, 20), run_of("step-22", LATER, 20))
    write_summary(folder, "step-22")
    catalog = RunCatalog([str(tmp_path)], OBJECTIVES)
    assert {each.run_id: each.turns for each in catalog.entries(now_unix_ns=NOW)} == {"step-1": 60, "step-22": 180}
    assert read == ["step-1"]


@pytest.mark.slow
def test_a_store_whose_runs_go_on_stays_open_until_they_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = tmp_path / "store", tmp_path / "other"
    now = _several(store)
    _several(other)
    events: list[str] = []

    class WatchedReader(StoreReader):
        def __init__(self, directory: str) -> None:
            super().__init__(directory)
            events.append(f"open {self.directory.name}")

        def close(self) -> None:
            events.append(f"close {self.directory.name}")
            super().close()

    monkeypatch.setattr(catalogs, "open_store", lambda store, _token: WatchedReader(store))

    def seen(catalog: RunCatalog, now_unix_ns: int) -> list[str]:
        events.clear()
        assert catalog.entries(now_unix_ns=now_unix_ns)
        return list(events)

    catalog = RunCatalog([str(store)], OBJECTIVES, open_stores=1)
    assert seen(catalog, now) == ["open store"]
    assert seen(catalog, now) == []
    # So much later its process counts as lost: nothing changes any more, and nothing is kept open for it.
    assert seen(catalog, now + HOUR_NS) == ["close store"]
    assert seen(catalog, now + HOUR_NS) == []
    both = RunCatalog([str(store), str(other)], OBJECTIVES, open_stores=1)
    first, second, closed = seen(both, now)
    assert {first, second} == {"open store", "open other"}
    assert closed == first.replace("open", "close")
    events.clear()
    both.close()
    assert events == [second.replace("open", "close")]
    assert seen(RunCatalog([str(store)], OBJECTIVES), now) == ["open store", "close store"]
