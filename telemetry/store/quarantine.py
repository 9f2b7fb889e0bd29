"""Files that look like the store's and belong to no manifest are set aside, never deleted, and never overwritten."""

import contextlib
import os
from pathlib import Path
from typing import Final

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.manifest import QUARANTINE_FOLDER, SEGMENTS_FOLDER, TEMPORARY_SUFFIX, StoreManifest
from telemetry.store.private_files import make_folder, write_durably
from telemetry.store.segment_files import read_footer

_NO_CHECKSUM: Final = 0


def left_overs(directory: Path, manifest: StoreManifest) -> list[Path]:
    """The files of ours among the segments that the manifest neither names nor gave up, in the order of their names."""
    folder = directory / SEGMENTS_FOLDER
    found = (Path(entry.path) for entry in manifests.own_files(directory))
    known = manifest.files.union(manifest.retired)
    return sorted(path for path in found if path.parent == folder and path.name not in known)


def quarantined(directory: Path) -> list[Path]:
    """The files of ours that were set aside, in the order of their names."""
    folder = directory / QUARANTINE_FOLDER
    return sorted(path for entry in manifests.own_files(directory) if (path := Path(entry.path)).parent == folder)


def unexplained(directory: Path, manifest: StoreManifest) -> list[Path]:
    """The files outside the store that may hold rows which are not in it.

    Half-written files hold none that was acknowledged, roll-ups none at all, and the rows of those that a merged
    segment replaced are in that one. Reads the footers of merged segments if there are any others. Raises OSError.
    """
    found = [
        path
        for path in (*quarantined(directory), *left_overs(directory, manifest))
        if manifests.parsed_name(path.name) is not None and TEMPORARY_SUFFIX not in path.suffixes
    ]
    replaced: set[str] = set()
    for segment in manifest.segments if found else ():
        with contextlib.suppress(OSError):  # of a segment that is lost or damaged, nothing is known
            footer = read_footer(manifests.segment_path(directory, segment), segment.crc32) if segment.level else None
            replaced.update(() if footer is None else footer[1].replaces)
    names = ((path, manifests.parsed_name(path.name)) for path in found)
    return [path for path, parsed in names if parsed is not None and parsed[0] not in replaced]


def move_to_quarantine(directory: Path, path: Path) -> Path:
    """Move a file into quarantine, beside whatever is there already; gives its new place. Raises OSError."""
    target = _free_place(directory, path.name)
    path.rename(target)
    return target


def copy_to_quarantine(directory: Path, path: Path) -> Path:
    """Copy a file into quarantine, beside whatever is there already; gives the copy's place. Raises OSError."""
    target = _free_place(directory, path.name)
    write_durably(target, path.read_bytes())
    return target


def _free_place(directory: Path, name: str) -> Path:
    folder = directory / QUARANTINE_FOLDER
    make_folder(folder)
    target, again = folder / name, 0
    while os.path.lexists(target):
        again += 1
        target = folder / f"{name}.{again}"
    return target


def next_number(directory: Path, manifest: StoreManifest) -> int:
    """The first number for a new segment's name that no file had, whatever the manifest remembers."""
    used = (manifests.number_of(entry.name) for entry in manifests.own_files(directory))
    return max(manifest.next_file, 1 + max(used, default=-1))


def refuse_outdated(directory: Path, manifest: StoreManifest, orphans: list[Path]) -> None:
    """Raise StoreError when the manifest is provably not the last one of this folder, and rows would go unseen.

    Files that no manifest names are what a killed writer leaves, too; that alone proves nothing.
    """
    reason = why_outdated(directory, manifest, orphans)
    if reason is not None:
        raise StoreError(
            f"{directory / manifests.MANIFEST_NAME}: is not the last manifest of this store ({reason}); "
            f"`voiceprobe store repair {directory}` makes it anew from the segments"
        )


def why_outdated(directory: Path, manifest: StoreManifest, orphans: list[Path]) -> str | None:
    """Why the manifest is provably not the last one, None when nothing proves it. Raises OSError."""
    previous = directory / manifests.PREVIOUS_NAME
    with contextlib.suppress(OSError, StoreError):
        before = manifests.decode(previous, previous.read_bytes()).sequence
        if before > manifest.sequence:
            return f"{previous.name} has sequence {before}, this has {manifest.sequence}"
    missing = {each.file for each in manifest.segments if not manifests.segment_path(directory, each).exists()}
    if orphans and missing and len(missing) == len(manifest.segments):
        return "none of the segments it names is there, others are"
    for path in orphans:
        found = read_footer(path, _NO_CHECKSUM)
        if found is None:
            continue
        _, origin = found
        if origin.sequence > manifest.sequence:
            return f"{path.name} was written after manifest {origin.sequence}, this is {manifest.sequence}"
        if missing.intersection(origin.replaces):
            return f"{path.name} took the place of segments that it names"
    return None
