"""Files that a killed writer wrote and never made part of the store, and whose rows are in it: nobody needs them.

Between writing a segment and naming it in the manifest a writer may be killed. What it appended is then in the ingest
log, whose rows are committed anew; what it merged is in the segments that it merged. Such a file is deleted, and only
when it is provably of this kind: intact, with the footer that only a writer gives, and each of its rows found in intact
segments of the store.
"""

from pathlib import Path
from typing import Final

import duckdb

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.duplicate_rows import duplicate_rows
from telemetry.store.inventory import IntactFile, examine
from telemetry.store.manifest import Segment, StoreManifest

# What was appended is committed anew at the next start. A file whose rows are not among so many is left to a repair.
_COMPARED_ROWS_MAX: Final = 2_000_000


def remove_redundant(manifest: StoreManifest, directory: Path, candidates: list[Path]) -> list[Path]:
    """Delete those of the files, which the manifest must not name, that hold no row beside the store; give the others.

    To be called when the ingest log is committed and nothing is being merged. What cannot be read or deleted now is
    given back, too.
    """
    left: list[Path] = []
    for path in candidates:
        try:
            found = examine(path)
            if isinstance(found, IntactFile) and _is_redundant(manifest, directory, found):
                path.unlink()
            elif found is not None:
                left.append(path)
        except (OSError, StoreError, duckdb.Error):
            left.append(path)
    return left


def _is_redundant(manifest: StoreManifest, directory: Path, file: IntactFile) -> bool:
    of_table = manifest.of(file.segment.table)
    if file.origin.replaces:
        sources = [segment for segment in of_table if segment.file in file.origin.replaces]
        return len(sources) == len(file.origin.replaces) and _are_intact(directory, sources)
    later = [segment for segment in of_table if _may_hold(segment, file.segment)]
    if sum(segment.rows for segment in later) > _COMPARED_ROWS_MAX or not _are_intact(directory, later):
        return False
    paths = [manifests.segment_path(directory, segment) for segment in later]
    found = duplicate_rows(file.segment.table, [*paths, file.path])
    return len(found.get(file.path, [])) == file.segment.rows


def _may_hold(segment: Segment, interrupted: Segment) -> bool:
    """Whether a segment was written after another one, and has rows of its time."""
    if manifests.number_of(segment.file) <= manifests.number_of(interrupted.file):
        return False
    moments = (segment.first_unix_ns, segment.last_unix_ns, interrupted.first_unix_ns, interrupted.last_unix_ns)
    first, last, begin, end = (moment or 0 for moment in moments)
    return first <= end and last >= begin


def _are_intact(directory: Path, segments: list[Segment]) -> bool:
    return all(manifests.is_intact(directory, segment) for segment in segments)
