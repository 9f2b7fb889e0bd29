"""Looks at every file of a store and says what is wrong with it, also while a sidecar writes it; changes nothing."""

import fcntl
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import msgspec

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store import quarantine
from telemetry.store.duplicate_rows import duplicate_rows
from telemetry.store.inventory import (
    IntactFile,
    Inventory,
    KnownManifests,
    Progress,
    examine,
    known_manifests,
    rollup_fault,
    take_inventory,
)
from telemetry.store.manifest import LOCK_NAME, SEGMENTS_FOLDER, Removed, StoreManifest, Table, segment_path
from telemetry.store.repair import faults as find_faults
from telemetry.store.repair import outdated
from telemetry.store.repair_plan import plan_repair

_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """The state of a store. `faults` are sentences; a store without any is sound.

    `rows` are those of sound segments that the manifest names. `unnamed` files lie among the segments without being
    named by the manifest, `quarantined` ones were moved out of the way, `strangers` are not ours. `duplicate_turns`
    are counted more than once. `removed` is what went because it was old, up to which moment.
    """

    store: str
    is_in_use: bool
    segments: int
    rows: dict[Table, int]
    damaged: int
    unnamed: int
    quarantined: int
    strangers: int
    duplicate_turns: int
    removed: dict[Table, Removed]
    faults: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The state as a JSON object."""
        removed = {table: msgspec.structs.asdict(each) for table, each in self.removed.items()}
        return {**asdict(self), "removed": removed}


def check(directory: Path, *, progress: Progress = lambda _done, _total: None) -> StoreCheck:
    """Look at every file of the store. Raises StoreError for a folder that is not a store or has another format."""
    known_manifests(directory)
    is_in_use = _is_locked(directory)
    known, inventory = _settled(directory, is_in_use=is_in_use, progress=progress)
    plan = plan_repair(known, inventory)
    named = frozenset[str]() if known.current is None else frozenset(each.file for each in known.current.segments)
    sound = [file for file in inventory.intact if file.segment.file in named and file.is_in_place]
    duplicates, unread = _duplicate_turns(sound)
    faults = [*find_faults(known, inventory, plan, None if is_in_use else outdated(directory, known)), *unread]
    if duplicates:
        faults.append(f"{duplicates:,} turns stand in the store more than once")
    rows = dict.fromkeys(manifests.TABLES, 0)
    for file in sound:
        rows[file.segment.table] += file.segment.rows
    current = StoreManifest() if known.current is None else known.current
    return StoreCheck(
        store=str(directory.resolve()),
        is_in_use=is_in_use,
        segments=len(named),
        rows=rows,
        damaged=len(named) - len({file.segment.file for file in sound}),
        unnamed=len(quarantine.left_overs(directory, current)),
        quarantined=len(quarantine.quarantined(directory)),
        strangers=len(inventory.strangers),
        duplicate_turns=duplicates,
        removed=current.removed,
        faults=tuple(faults),
    )


def _is_locked(directory: Path) -> bool:
    try:
        with (directory / LOCK_NAME).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _settled(directory: Path, *, is_in_use: bool, progress: Progress) -> tuple[KnownManifests, Inventory]:
    """The manifest and the files of one moment. While a writer works, what it has not committed is left out."""
    inventory = take_inventory(directory, progress)
    if not is_in_use:
        return known_manifests(directory), inventory
    examined: dict[str, IntactFile | str | None] = {
        file.segment.file: file for file in inventory.intact if file.is_in_place
    }
    kept = tuple(file for file in inventory.intact if file.path.parent.name != SEGMENTS_FOLDER)
    rollups: dict[Path, str | None] = dict.fromkeys(inventory.others)
    for _ in range(_ATTEMPTS):
        known = known_manifests(directory)
        if known.current is None:
            break
        for segment in known.current.segments:
            if not isinstance(examined.get(segment.file), IntactFile):
                examined[segment.file] = examine(segment_path(directory, segment))
            if segment.rollup is not None and rollups.get(path := _rollup_path(directory, segment.rollup), "unknown"):
                rollups[path] = rollup_fault(path)
        files = [examined[segment.file] for segment in known.current.segments]
        named = [_rollup_path(directory, each.rollup) for each in known.current.segments if each.rollup is not None]
        faults = {path: fault for path in named if (fault := rollups[path]) is not None}
        damaged = {
            segment_path(directory, segment): fault
            for segment in known.current.segments
            if isinstance(fault := examined[segment.file], str)
        }
        if (None in files or faults) and known_manifests(directory).sequence != known.sequence:
            continue  # compaction replaced a segment meanwhile
        intact = tuple(file for file in files if isinstance(file, IntactFile))
        others = tuple(path for path, fault in rollups.items() if fault is None)
        return known, Inventory((*intact, *kept), damaged | faults, others, inventory.strangers)
    raise StoreError(f"{directory}: the store changes faster than it can be checked; check it again")


def _rollup_path(directory: Path, rollup: str) -> Path:
    return directory / SEGMENTS_FOLDER / rollup


def _duplicate_turns(sound: list[IntactFile]) -> tuple[int, list[str]]:
    """How many turns stand there more than once, and why that is unknown."""
    try:
        found = duplicate_rows("turns", [file.path for file in sound if file.segment.table == "turns"])
    except duckdb.Error as error:
        return 0, [f"turns could not be compared ({error})"]
    return sum(map(len, found.values())), []
