"""The list of all runs, of one folder of runs or of several stores, by what is already known of each.

A run that has ended does not change: what was found of it is kept, in memory and in a file in its folder of runs, as
long as the manifest of its store and its summary are the same files. The file is only ever a shorter way to the same
answer: where it is missing, stale or damaged, the stores are read again.
"""

import contextlib
import os
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.foreign_text import one_line
from telemetry.objectives.objective import Objective
from telemetry.store import manifest
from telemetry.store.manifest import MANIFEST_NAME
from telemetry.store.private_files import write_durably
from telemetry.store.reader import StoreReader
from telemetry.store.remote import RemoteStore, open_store
from telemetry.store.run_folders.entries import RunEntry, judged_anew
from telemetry.store.run_folders.kept_objectives import OBJECTIVES_NAME, are_kept_otherwise, objectives_of
from telemetry.store.run_folders.known_runs import KnownRuns
from telemetry.store.run_folders.notes import read_notes
from telemetry.store.run_folders.open_files import writer_in
from telemetry.store.run_folders.places import SUMMARY_NAME, StorePlace, places_of
from telemetry.store.run_folders.stored import StoredRuns, read_store
from telemetry.store.run_folders.summaries import BadSummaryError, read_summary

KEPT_NAME: Final = ".runs.json"
KEPT_VERSION: Final = 3
NOTHING_STORED: Final = "no turn is stored here: the run never began, or its turns went to another sidecar's store"

# So many stores are read before what is known of them is kept on disk.
_SAVE_EVERY: Final = 50

# When the manifest, the summary and the kept objectives were written, which files they are, and their sizes; 0 where
# one is missing. The last number is of the objectives that are asked for.
_OF_A_FILE: Final = 3
_Stamp = tuple[int, ...]
Progress = Callable[[int, int], None]


class _Kept(msgspec.Struct):
    stamp: _Stamp
    entries: list[RunEntry]


class _File(msgspec.Struct):
    version: int
    places: dict[str, _Kept]


@dataclass(slots=True)
class RunListing:
    """Runs, the newest first; the stores that have not been read yet, and how many runs of the others have not. Of runs
    that ended and are `outdated`, by their references, the figures are former ones until they are read again. They are
    judged by the `objectives`; None: each by its own."""

    entries: list[RunEntry]
    unread: list[str]
    unread_runs: int = 0
    outdated: set[str] = field(default_factory=set[str])
    objectives: tuple[Objective, ...] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether everything has been read."""
        return not self.unread and not self.unread_runs


@dataclass(frozen=True, slots=True)
class _ListingTime:
    """One listing: when it is made, and whether its time is over."""

    now_unix_ns: int
    is_over: Callable[[], bool]


class RunCatalog:
    """Lists runs again and again; thread-safe. They are judged by the `objectives`; without, each by those that it was
    judged by before, else by the default set. `token` is for the sidecars among the places. Of the stores whose
    runs go on, which are read again at each listing, `open_stores` stay open until `close`. `shared` gives readers that
    others hold, too: those are let go of, and not closed."""

    def __init__(
        self,
        given: Sequence[str],
        objectives: Sequence[Objective] | None,
        *,
        token: str | None = None,
        open_stores: int = 0,
        shared: Callable[[str], StoreReader | RemoteStore] | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.given = tuple(given)
        self._objectives = None if objectives is None else tuple(objectives)
        self._token = token
        self._shared = shared
        self._monotonic_s = monotonic_s
        # What was found depends on what it was judged by, too.
        self._judged_by = 0 if objectives is None else zlib.crc32(repr(self._objectives).encode())
        self._kept: dict[str, _Kept] = {}
        # What was read of each store, in the order of reading; of runs that go on it grows old.
        self._latest: dict[str, StoredRuns] = {}
        # Of stores whose runs go on: their other runs are read once.
        self._known_runs: dict[str, KnownRuns] = {}
        self._open_stores = open_stores
        self._readers: OrderedDict[str, StoreReader | RemoteStore] = OrderedDict()
        self._loaded: set[Path] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the stores that are open."""
        with self._lock:
            self._close_beyond(0)

    def entries(
        self, *, now_unix_ns: int | None = None, progress: Progress = lambda _done, _total: None
    ) -> list[RunEntry]:
        """Every run, the newest first. Raises ConfigError for a place that is not a folder; what is wrong with a single
        run is said in its entry."""
        return self.listing(now_unix_ns=now_unix_ns, progress=progress).entries

    def listing(
        self,
        *,
        within_s: float | None = None,
        now_unix_ns: int | None = None,
        progress: Progress = lambda _done, _total: None,
    ) -> RunListing:
        """As `entries`, but when the time is over, stores wait for the next listing, and so do runs of a store; at
        least one is read, and what goes on is. What was read is kept also when something ends the process in between.
        """
        now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
        places = places_of(self.given)
        listing = RunListing([], [], objectives=self._objectives)
        with self._lock:
            self._load(places)
            end_s = None if within_s is None else self._monotonic_s() + within_s
            look = _ListingTime(now_unix_ns, lambda: end_s is not None and self._monotonic_s() >= end_s)
            unsaved: list[Path] = []
            read = 0
            try:
                for number, (place, stamp) in enumerate(self._ordered(places)):
                    found = self._known(place, stamp)
                    if found is None and (not read or not look.is_over()):
                        found = self._read_and_keep(place, stamp, look, unsaved)
                        read += 1
                        if len(unsaved) >= _SAVE_EVERY:
                            self._save(unsaved, places)
                    found = self._former(place) if found is None else found
                    if found is None:
                        listing.unread.append(place.store)
                    else:
                        listing.entries += self._noted(place, found.entries)
                        listing.unread_runs += found.unread
                        listing.outdated |= {e.reference for e in found.entries if e.run_id in found.outdated}
                    progress(number + 1, len(places))
            finally:
                self._save(unsaved, places)
        listing.entries.sort(key=lambda each: (each.listed_unix_ns, each.run_id, each.store), reverse=True)
        return listing

    def _ordered(self, places: Sequence[StorePlace]) -> list[tuple[StorePlace, _Stamp]]:
        """Stores that were never read come first, of them what has changed last, which is what people look for; then
        those that are read every time, as their runs go on, the one that was read longest ago first."""
        stamped = [(place, _stamp(place, self._judged_by)) for place in places]
        turn = {key: number for number, key in enumerate(self._latest)}
        return sorted(stamped, key=lambda each: (turn.get(_key(each[0]), -1), -_changed_unix_ns(each[1])))

    def _known(self, place: StorePlace, stamp: _Stamp) -> StoredRuns | None:
        kept = self._kept.get(_key(place))
        if kept is None or not stamp or kept.stamp != stamp:
            return None
        return StoredRuns([_here(each, place) for each in kept.entries])

    def _former(self, place: StorePlace) -> StoredRuns | None:
        """What was read of a store that has to wait now, with the runs that are no longer as they were then; None
        before it was read."""
        found, known = self._latest.get(_key(place)), self._known_runs.get(_key(place))
        if found is not None and known is not None and not place.is_remote:
            with contextlib.suppress(StoreError, OSError):
                return replace(found, outdated=known.changed(Path(place.store)))
        return found

    def _read_and_keep(self, place: StorePlace, stamp: _Stamp, look: _ListingTime, unsaved: list[Path]) -> StoredRuns:
        key = _key(place)
        found = self._read(place, look)
        self._latest.pop(key, None)  # so that it is the last one now
        self._latest[key] = found
        if stamp and found.is_whole and all(each.state not in ("under way", "damaged") for each in found.entries):
            self._kept[key] = _Kept(stamp, found.entries)
            if (reader := self._readers.pop(key, None)) is not None:
                self._release(reader)
            unsaved += [] if place.root is None else [place.root]
        return found

    def _noted(self, place: StorePlace, entries: list[RunEntry]) -> list[RunEntry]:
        notes = read_notes(place.notes_folder)
        return [msgspec.structs.replace(each, note=notes.get(each.run_id)) for each in entries] if notes else entries

    def _read(self, place: StorePlace, look: _ListingTime) -> StoredRuns:
        summed, fault = None, None
        try:
            summed = read_summary(place)
        except (BadSummaryError, OSError) as error:
            fault = _reason(error)
        try:
            found = self._read_store(place, summed, look)
        except (StoreError, ConfigError, OSError) as error:
            # The row of a sidecar begins with its address already.
            fault = _reason(error).removeprefix(f"{place.store}: " if place.is_remote else "")
            found = StoredRuns([] if summed is None else [summed])
        if not found.entries and not found.unread and (place.folder is not None or fault is not None):
            return StoredRuns([_unread(place, fault or NOTHING_STORED)])
        if fault is None:
            return found
        return replace(found, entries=[msgspec.structs.replace(each, fault=fault) for each in found.entries])

    def _read_store(self, place: StorePlace, summed: RunEntry | None, look: _ListingTime) -> StoredRuns:
        """Every run of the store; of `summed` what its command said of it, unless that was by other objectives."""
        store, stated = Path(place.store), None if self._is_judged_anew(place) else summed
        if not place.is_remote and (not store.is_dir() or (stated is not None and _is_of(store, stated.run_id))):
            return StoredRuns([] if summed is None else [summed])
        with self._opened(place) as reader:
            known = self._known_runs.setdefault(_key(place), KnownRuns())
            found = read_store(
                reader,
                place,
                objectives_of(place.folder) if self._objectives is None else self._objectives,
                look.now_unix_ns,
                known=known,
                left_out=None if stated is None else stated.run_id,
                is_over=look.is_over,
            )
        if summed is None:
            return found
        entries = found.entries if stated is None else [stated, *found.entries]
        return replace(found, entries=[judged_anew(summed, each) for each in entries])

    def _is_judged_anew(self, place: StorePlace) -> bool:
        """Whether what the command of a run said of it was by other objectives than are asked for."""
        return self._objectives is not None and are_kept_otherwise(place.folder, self._objectives)

    @contextlib.contextmanager
    def _opened(self, place: StorePlace) -> Generator[StoreReader | RemoteStore]:
        """The reader of a store. Of those that were read last it stays open, with what it knows of its segments."""
        key = _key(place)
        reader = self._readers.pop(key, None) or self._open(place.store)
        try:
            yield reader
        except BaseException:
            self._release(reader)
            raise
        self._readers[key] = reader
        self._close_beyond(self._open_stores)

    def _close_beyond(self, number: int) -> None:
        while len(self._readers) > number:
            self._release(self._readers.popitem(last=False)[1])

    def _open(self, store: str) -> StoreReader | RemoteStore:
        return open_store(store, self._token) if self._shared is None else self._shared(store)

    def _release(self, reader: StoreReader | RemoteStore) -> None:
        if self._shared is None:
            reader.close()

    def _load(self, places: Sequence[StorePlace]) -> None:
        for root in {place.root for place in places if place.root is not None} - self._loaded:
            kept = _load(root)
            of_root = {place.folder.name: _key(place) for place in places if place.root == root and place.folder}
            self._kept |= {of_root[name]: each for name, each in kept.items() if name in of_root}
            self._loaded.add(root)

    def _save(self, unsaved: list[Path], places: Sequence[StorePlace]) -> None:
        for root in set(unsaved):
            self._save_in(root, places)
        unsaved.clear()

    def _save_in(self, root: Path, places: Sequence[StorePlace]) -> None:
        """Keep what was found in its folder of runs; one that cannot be written to stays without."""
        of_root = {
            place.folder.name: self._kept[_key(place)]
            for place in places
            if place.root == root and place.folder is not None and _key(place) in self._kept
        }
        part = root / f"{KEPT_NAME}.{os.getpid()}"
        with contextlib.suppress(OSError):
            write_durably(part, msgspec.json.encode(_File(KEPT_VERSION, of_root)))
            part.replace(root / KEPT_NAME)


def _load(root: Path) -> dict[str, _Kept]:
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        found = msgspec.json.decode((root / KEPT_NAME).read_bytes(), type=_File)
        if found.version == KEPT_VERSION:
            return found.places
    return {}


def _key(place: StorePlace) -> str:
    return place.store if place.is_remote else str(Path(place.store).absolute())


def _stamp(place: StorePlace, judged_by: int) -> _Stamp:
    """What changes with the run's files; empty for a sidecar, which is always asked."""
    if place.is_remote:
        return ()
    files = [Path(place.store) / MANIFEST_NAME]
    if place.folder is not None:
        files += [place.folder / SUMMARY_NAME, place.folder / OBJECTIVES_NAME]
    stamp: list[int] = []
    for file in files:
        try:
            stat = file.stat()
            stamp += (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        except OSError:
            stamp += (0, 0, 0)
    return (*stamp, judged_by) if any(stamp) else ()


def _changed_unix_ns(stamp: _Stamp) -> int:
    """When the newest of the files was written; 0 where there is none."""
    return max(stamp[:-1:_OF_A_FILE], default=0)


def _here(entry: RunEntry, place: StorePlace) -> RunEntry:
    """What was kept is about the same files, by the path that they have now."""
    folder = None if place.folder is None else str(place.folder)
    if (entry.store, entry.folder) == (place.store, folder):
        return entry
    return msgspec.structs.replace(entry, store=place.store, folder=folder)


def _is_of(store: Path, run_id: str) -> bool:
    """Whether the manifest names no other run than this. Raises StoreError."""
    named = [segment.run_ids for segment in manifest.load(store).of("turns")]
    return all(each is not None and set(each) <= {run_id, ""} for each in named)


def _unread(place: StorePlace, fault: str) -> RunEntry:
    """A place of which no run is known: one that has only begun, or a damaged one."""
    folder = place.folder
    name = folder.name if folder is not None else ""
    begins = fault == NOTHING_STORED and folder is not None and writer_in(folder) is not None
    changed_unix_ns = None
    if folder is not None:
        with contextlib.suppress(OSError):
            changed_unix_ns = folder.stat().st_mtime_ns
    return RunEntry(
        run_id=name or place.store,
        store=place.store,
        state="under way" if begins else "damaged",
        folder=None if folder is None else str(folder),
        name=name,
        began_unix_ns=changed_unix_ns,
        sentence="no turn is stored yet" if begins else "",
        fault=None if begins else fault,
    )


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return one_line(text or str(error))
