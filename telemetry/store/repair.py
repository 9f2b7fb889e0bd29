"""Making a store's manifest anew from its segments. Nothing is deleted: what is not used moves to quarantine."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store import quarantine
from telemetry.store.inventory import IntactFile, Inventory, KnownManifests, Progress, known_manifests, take_inventory
from telemetry.store.manifest import (
    MANIFEST_NAME,
    PREVIOUS_NAME,
    SEGMENTS_FOLDER,
    Segment,
    StoreManifest,
    Table,
    segment_path,
)
from telemetry.store.private_files import fsync_directory, make_folder
from telemetry.store.repair_plan import RepairPlan, plan_repair
from telemetry.store.row_groups import row_groups
from telemetry.store.segment_stream import NewSegment, write_segment
from telemetry.store.writer import locked


@dataclass(frozen=True, slots=True)
class Repair:
    """What was wrong with a store, a sentence each, the rows of each table afterwards, and how many are lost."""

    faults: tuple[str, ...]
    rows: dict[Table, int]
    lost_rows: int


def repair(directory: Path, *, dry_run: bool = False, progress: Progress = lambda _done, _total: None) -> Repair:
    """Make the manifest anew where it does not name every intact row once.

    Raises StoreError, and changes nothing, while a writer owns the store, for a folder that is not a store or one of
    another format, and when a file cannot be read for a reason that is not its own.
    """
    known_manifests(directory)
    with locked(directory):
        known = known_manifests(directory)
        inventory = take_inventory(directory, progress)
        plan = plan_repair(known, inventory)
        found = faults(known, inventory, plan, outdated(directory, known))
        if found and not dry_run:
            try:
                _carry_out(directory, known, inventory, plan)
            except OSError as error:
                raise StoreError(
                    f"{directory}: cannot be repaired now ({error.strerror or error}); nothing is lost, repair it again"
                ) from error
    return Repair(tuple(found), plan.rows(), sum(each.rows for each in plan.lost))


def outdated(directory: Path, known: KnownManifests) -> str | None:
    """Why the manifest is not the last one of this folder, None when nothing proves it."""
    if known.current is None:
        return None
    return quarantine.why_outdated(directory, known.current, quarantine.left_overs(directory, known.current))


def faults(known: KnownManifests, inventory: Inventory, plan: RepairPlan, outdated: str | None) -> list[str]:
    """In what the store is not as planned, a sentence each; nothing for a sound store."""
    fault = known.fault or outdated
    if fault is None and known.current is not None and plan.base is not known.current:
        fault = f"{MANIFEST_NAME}: names no segment that is here, {PREVIOUS_NAME} does"
    return [
        *([] if fault is None else [fault]),
        *(
            f"{path} is damaged: {why}"
            for path, why in inventory.damaged.items()
            if path.parent.name == SEGMENTS_FOLDER
        ),
        *(f"{each.file} is lost: {each.rows:,} rows of {each.table}" for each in plan.lost),
        *_not_named(plan),
        *(
            f"{file.path} is superfluous: its rows are in other segments"
            for file in plan.superfluous
            if file.path.parent.name == SEGMENTS_FOLDER
        ),
    ]


def _not_named(plan: RepairPlan) -> Iterable[str]:
    committed = {each.file: each for each in plan.base.segments}
    for file in plan.kept:
        segment = file.segment
        if segment.file not in committed:
            yield f"{file.path} is not in the manifest: {segment.rows:,} rows of {segment.table}"
        elif not file.is_in_place:
            yield f"{file.path} is not where the manifest says: {segment.rows:,} rows of {segment.table}"
        elif committed[segment.file].rollup != segment.rollup:
            yield f"{file.path} has lost {committed[segment.file].rollup}: its rows are there, and slower to ask"
        elif committed[segment.file] != segment:
            yield f"{file.path} is not as the manifest says: it holds {segment.rows:,} rows of {segment.table}"
    for file, places in plan.partly.values():
        yield (
            f"{file.path} is not in the manifest: {file.segment.rows - len(places):,} rows of {file.segment.table}; "
            f"{len(places):,} others are in the store already"
        )


def _carry_out(directory: Path, known: KnownManifests, inventory: Inventory, plan: RepairPlan) -> None:
    """Move the files, write what is to be written, and publish the manifest last: killed before it, the same repair
    can be done again. Raises OSError."""
    make_folder(directory / SEGMENTS_FOLDER)
    number = quarantine.next_number(directory, plan.base)
    used = {file.path for file in plan.kept}.union(plan.partly)
    rollups = {file.segment.rollup for file in plan.kept}
    intact = (file.path for file in inventory.intact)
    for path in sorted({*intact, *inventory.damaged, *inventory.others} - used):
        if path.parent.name == SEGMENTS_FOLDER and path.name not in rollups:
            quarantine.move_to_quarantine(directory, path)
    for file in plan.kept:
        if not file.is_in_place:
            file.path.rename(segment_path(directory, file.segment))
    sequence = 1 + max([known.sequence, *(file.origin.sequence for file in inventory.intact)])
    segments = [file.segment for file in plan.kept]
    for place, (file, places) in enumerate(plan.partly.values()):
        segments.append(_without_rows(directory, file, places, number + place, sequence - 1))
        if file.path.parent.name == SEGMENTS_FOLDER:
            quarantine.move_to_quarantine(directory, file.path)
    fsync_directory(directory / SEGMENTS_FOLDER)
    for name in (MANIFEST_NAME, PREVIOUS_NAME):
        if (directory / name).exists():
            quarantine.copy_to_quarantine(directory, directory / name)
    next_file = number + len(plan.partly)
    removed = plan.base.removed
    manifest = StoreManifest(sequence=sequence, next_file=next_file, segments=tuple(segments), removed=removed)
    manifests.publish(directory, manifest, keep_previous=known.current is not None)
    fsync_directory(directory)


def _without_rows(directory: Path, file: IntactFile, places: list[int], number: int, sequence: int) -> Segment:
    """Write the rows of a file that are not in these places as a segment. Raises OSError."""
    content = pq.read_table(file.path)
    gone = set(places)
    content = content.take(pa.array([place for place in range(content.num_rows) if place not in gone], pa.int64()))
    segment = file.segment
    new = NewSegment(
        table=segment.table,
        number=number,
        sequence=sequence,
        stored_unix_ns=segment.stored_unix_ns,
        level=segment.level,
        replaces=(segment.file,),
        of_segments=(segment,),
    )
    return write_segment(directory, new, row_groups(content))
