"""What lies in the folder of a store, whatever its manifest says: every file looked at, nothing changed."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.manifest import MANIFEST_NAME, PREVIOUS_NAME, SEGMENTS_FOLDER, Segment, StoreManifest
from telemetry.store.segment_files import Origin, read_footer

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class IntactFile:
    """A segment that holds exactly the bytes that were written, wherever it lies and under whatever name now."""

    path: Path
    segment: Segment
    origin: Origin

    @property
    def is_in_place(self) -> bool:
        """Whether it lies where a manifest could name it."""
        return self.path.parent.name == SEGMENTS_FOLDER and self.path.name == self.segment.file


@dataclass(frozen=True, slots=True)
class Inventory:
    """The files of a store. `damaged` are segments and roll-ups whose content is not what was written, with the reason.

    `others` are our own files beside them: intact roll-ups, and those that were not written to their end. `strangers`
    are files among the segments whose names no
    writer of a store gives.
    """

    intact: tuple[IntactFile, ...]
    damaged: dict[Path, str]
    others: tuple[Path, ...]
    strangers: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class KnownManifests:
    """The manifests of a store that can be read, and why the current one cannot be."""

    current: StoreManifest | None
    previous: StoreManifest | None
    fault: str | None

    @property
    def sequence(self) -> int:
        """The highest sequence of any of them; 0 without one."""
        return max((each.sequence for each in (self.current, self.previous) if each is not None), default=0)


def known_manifests(directory: Path) -> KnownManifests:
    """Read both manifests. Raises StoreError for a store of another format, or one that cannot be read at all."""
    if not directory.is_dir():
        raise StoreError(f"{directory}: is not a folder; name the folder of a store")
    previous = _read(directory / PREVIOUS_NAME)
    current = _read(directory / MANIFEST_NAME)
    if current is None and previous is None and not any(manifests.own_files(directory)):
        raise StoreError(f"{directory}: holds nothing of a store; name the folder that the sidecar was given")
    fault = current if isinstance(current, str) else None
    if current is None:
        fault = f"{directory / MANIFEST_NAME}: is missing"
    return KnownManifests(
        current if isinstance(current, StoreManifest) else None,
        previous if isinstance(previous, StoreManifest) else None,
        fault,
    )


def _read(path: Path) -> StoreManifest | str | None:
    """The manifest, why it is not one, or None when it is missing. Raises StoreError for another format."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); check the permissions of the store") from error
    try:
        return manifests.decode(path, content)
    except manifests.OtherFormatError:
        raise
    except StoreError as error:
        return str(error)


def take_inventory(directory: Path, progress: Progress = lambda _done, _total: None) -> Inventory:
    """Look at every file below `segments` and `quarantine`. Raises StoreError when one cannot be read for a reason
    that is not its own, such as its permissions. A file that goes meanwhile is left out."""
    paths = sorted(Path(entry.path) for entry in manifests.own_files(directory))
    intact: list[IntactFile] = []
    damaged: dict[Path, str] = {}
    others: list[Path] = []
    for done, path in enumerate(paths):
        progress(done, len(paths))
        if manifests.parsed_name(path.name) is None:
            if (fault := rollup_fault(path)) is None:
                others.append(path)
            elif path.exists():
                damaged[path] = fault
            continue
        found = examine(path)
        if isinstance(found, IntactFile):
            intact.append(found)
        elif found is not None:
            damaged[path] = found
    progress(len(paths), len(paths))
    return Inventory(tuple(intact), damaged, tuple(others), strangers(directory))


def examine(path: Path) -> IntactFile | str | None:
    """The intact segment that a file with a segment's name is, what is wrong with it, or None if it is gone.

    Raises StoreError when it cannot be read for a reason that is not its own.
    """
    parsed = manifests.parsed_name(path.name)
    if parsed is None:
        return "its name is not that of a segment"
    file, crc32 = parsed
    try:
        if manifests.crc32_of(path) != crc32:
            is_half = path.name.partition(file)[2].startswith(manifests.TEMPORARY_SUFFIX)
            return "it was not written to its end" if is_half else "its content is not what was written"
        footer = read_footer(path, crc32)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:
            return f"it cannot be read ({error.strerror})"
        raise StoreError(f"{path}: cannot be read ({error.strerror}); see to that and try again") from error
    if footer is None:
        return "its footer is not that of a segment"
    segment, origin = footer
    return IntactFile(path, msgspec.structs.replace(segment, file=file), origin)


def rollup_fault(path: Path) -> str | None:
    """What is wrong with the file of a roll-up, None for an intact one and for what was not written to its end.

    Raises StoreError as `examine`.
    """
    stated = manifests.crc32_of_rollup(path.name)
    if stated is None:
        return None
    try:
        return None if manifests.crc32_of(path) == stated else "its content is not what was written"
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        if error.errno == errno.EIO:
            return f"it cannot be read ({error.strerror})"
        raise StoreError(f"{path}: cannot be read ({error.strerror}); see to that and try again") from error


def strangers(directory: Path) -> tuple[Path, ...]:
    """The files among the segments whose names no writer of a store gives."""
    try:
        return tuple(
            sorted(each for each in (directory / SEGMENTS_FOLDER).iterdir() if not manifests.is_own_name(each.name))
        )
    except FileNotFoundError:
        return ()
