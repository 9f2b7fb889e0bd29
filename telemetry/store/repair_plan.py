"""Which of a store's files make it up, when its manifest cannot be relied on: each intact row once.

The last manifest that can be read says which segments were committed. Intact segments beside it are added, unless their
rows are in the store already: a merged segment names those it replaces, and any other is compared row by row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import msgspec

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.duplicate_rows import duplicate_rows
from telemetry.store.inventory import IntactFile, Inventory, KnownManifests
from telemetry.store.manifest import SEGMENTS_FOLDER, TABLES, Segment, StoreManifest


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What makes up the store: `kept` in their order, as they are; `partly` after them, without the rows of these
    places. `base` is the manifest they are compared with, `superfluous` are files whose rows are all among these,
    `lost` segments of the base of which no intact file is left."""

    base: StoreManifest
    kept: tuple[IntactFile, ...]
    partly: Mapping[Path, tuple[IntactFile, list[int]]]
    superfluous: tuple[IntactFile, ...]
    lost: tuple[Segment, ...]

    def rows(self) -> dict[manifests.Table, int]:
        """How many rows of each table make up the store."""
        found = dict.fromkeys(TABLES, 0)
        for file in self.kept:
            found[file.segment.table] += file.segment.rows
        for file, places in self.partly.values():
            found[file.segment.table] += file.segment.rows - len(places)
        return found


@dataclass(slots=True)
class _Choice:
    """The files chosen so far, by the names of their segments; `added` are those that the base does not name.

    `replaced` are the names of segments whose rows other files took over, all of which are in the store.
    """

    committed: dict[str, IntactFile] = field(default_factory=dict[str, IntactFile])
    added: dict[str, IntactFile] = field(default_factory=dict[str, IntactFile])
    replaced: set[str] = field(default_factory=set[str])
    superfluous: list[IntactFile] = field(default_factory=list[IntactFile])
    partly: dict[Path, tuple[IntactFile, list[int]]] = field(default_factory=dict[Path, tuple[IntactFile, list[int]]])

    def commit(self, file: IntactFile) -> None:
        """Take a file that the base names."""
        self.committed[file.segment.file] = file
        self.replaced.update(file.origin.replaces)

    def add(self, file: IntactFile) -> None:
        """Take a file into the choice, unless it or what it was made of is there."""
        replaces = file.origin.replaces
        if file.segment.file in self.replaced or (replaces and all(each in self.committed for each in replaces)):
            self.superfluous.append(file)
        else:
            self.added[file.segment.file] = file
            self.replaced.update(replaces)

    def compare(self) -> None:
        """Take out what was added and whose rows are there already, wholly or partly. Raises StoreError."""
        for table in TABLES:
            added = [each for each in self.added.values() if each.segment.table == table]
            if not added:
                continue
            committed = [each for each in self.committed.values() if each.segment.table == table]
            try:
                duplicates = duplicate_rows(table, [each.path for each in (*committed, *added)])
            except duckdb.Error as error:
                raise StoreError(
                    f"the segments of {table} cannot be compared ({error}); nothing was changed"
                ) from error
            for file in added:
                self._without(file, duplicates.get(file.path, []))

    def _without(self, file: IntactFile, places: list[int]) -> None:
        if not places:
            return
        del self.added[file.segment.file]
        if len(places) == file.segment.rows:
            self.superfluous.append(file)
        else:
            self.partly[file.path] = (file, places)


def plan_repair(known: KnownManifests, inventory: Inventory) -> RepairPlan:
    """What makes up the store. Raises StoreError when segments cannot be compared."""
    by_name = _by_name(inventory.intact)
    base = _base(known, set(by_name))
    for file in base.expired:
        by_name.pop(file, None)
    rollups = {path.name for path in inventory.others if path.parent.name == SEGMENTS_FOLDER}
    choice = _Choice()
    missing: list[Segment] = []
    for segment in base.segments:
        file = by_name.pop(segment.file, None)
        if file is None or file.segment.crc32 != segment.crc32:
            missing.append(segment)
        else:
            choice.commit(_with_rollup(file, segment if segment.rollup in rollups else file.segment))
    # The most merged first: what they replace need not be looked at.
    for file in sorted(by_name.values(), key=lambda each: (-each.segment.level, each.segment.file)):
        choice.add(file)
    choice.compare()
    lost = tuple(each for each in missing if each.file not in choice.replaced)
    kept = (*choice.committed.values(), *sorted(choice.added.values(), key=lambda each: each.segment.file))
    return RepairPlan(base, kept, choice.partly, tuple(choice.superfluous), lost)


def _base(known: KnownManifests, present: set[str]) -> StoreManifest:
    """The last manifest, unless it names nothing that is here and the one before it does: then it is another store's,
    or what it names is lost while the files before a merge are there."""
    current, previous = known.current, known.previous
    if current is None:
        return previous or StoreManifest()
    if previous is None or not current.segments or any(each.file in present for each in current.segments):
        return current
    return previous if any(each.file in present for each in previous.segments) else current


def _by_name(files: Sequence[IntactFile]) -> dict[str, IntactFile]:
    """One file for each segment: the one that is in place already, where there are copies."""
    found: dict[str, IntactFile] = {}
    for file in sorted(files, key=lambda each: not each.is_in_place):
        found.setdefault(file.segment.file, file)
    return found


def _with_rollup(file: IntactFile, named: Segment) -> IntactFile:
    segment = msgspec.structs.replace(file.segment, rollup=named.rollup, rollup_bytes=named.rollup_bytes)
    return IntactFile(file.path, segment, file.origin)
