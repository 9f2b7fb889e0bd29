"""Changes of a run by people: a note in its folder, and the removal of its folder.

A note is a separate file in a folder `notes`. The folder of a run is first renamed and then deleted: renaming is
atomic, so a run exists or it does not, whenever the process is killed. A renamed folder that a killed removal left is
deleted by the next one.
"""

import contextlib
import os
import shutil
import uuid
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from telemetry.model.errors import StoreError
from telemetry.store.database import DATABASE_NAME, InUseError, owned
from telemetry.store.private_files import fsync_directory, make_folder, write_durably
from telemetry.store.run_folders.places import REMOVING_PREFIX, STORE_FOLDER

LONGEST_NOTE_CHARS: Final = 2000
_SUFFIX: Final = ".txt"
_LONGEST_NAME_BYTES: Final = 240


def read_notes(folder: Path | None) -> dict[str, str]:
    """The notes of a folder, by run; empty if there are none, or they cannot be read."""
    notes: dict[str, str] = {}
    if folder is None:
        return notes
    with contextlib.suppress(OSError), os.scandir(folder) as inside:
        for entry in inside:
            if entry.name.endswith(_SUFFIX) and not entry.name.startswith("."):
                with contextlib.suppress(OSError):
                    text = Path(entry.path).read_text(encoding="utf-8", errors="replace")
                    notes[unquote(entry.name.removesuffix(_SUFFIX))] = text[:LONGEST_NOTE_CHARS].strip()
    return notes


def write_note(folder: Path, run_id: str, text: str) -> None:
    """Store a note durably, completely or not at all. An empty text removes the note. Raises StoreError."""
    if len(text) > LONGEST_NOTE_CHARS:
        raise StoreError(f"a note has at most {LONGEST_NOTE_CHARS:,} characters, this one has {len(text):,}")
    name = f"{quote(run_id, safe=' :')}{_SUFFIX}"
    if len(name.encode()) > _LONGEST_NAME_BYTES:
        raise StoreError(f"the name of the run is too long for a note's file: {run_id:.60}…")
    file = folder / name
    try:
        if not text.strip():
            if file.exists():
                file.unlink()
                fsync_directory(folder)
            return
        make_folder(folder)
        part = folder / f".{name}.{os.getpid()}"
        write_durably(part, f"{text.strip()}\n".encode())
        part.replace(file)
        fsync_directory(folder)
        fsync_directory(folder.parent)
    except OSError as error:
        raise StoreError(f"{file}: the note cannot be kept ({error.strerror}); make room, or check its place") from None


def remove_folder(folder: Path) -> None:
    """Remove the folder of a run. Raises StoreError if the run is in progress, the folder is a link, or it cannot be
    removed; then it is unchanged, or it is gone from the list of runs and the text says what is left."""
    if folder.is_symlink():
        raise StoreError(f"{folder}: is a link; remove it yourself, and what it leads to if that is to go, too")
    if (writer := writer_in(folder)) is not None:
        raise StoreError(f"{folder}: the run is under way (process {writer} writes there); end it first")
    store = folder / STORE_FOLDER
    with contextlib.ExitStack() as stack:
        if (store / DATABASE_NAME).exists():
            try:
                # Owned while it moves: no sidecar can begin to write to it in between.
                stack.enter_context(owned(store, within_s=0))
            except InUseError:
                raise StoreError(f"{folder}: the run is under way; end it first") from None
            except StoreError:
                pass  # nobody writes to a damaged store
        moved = folder.with_name(f"{REMOVING_PREFIX}{folder.name}-{uuid.uuid4().hex[:8]}")
        try:
            folder.rename(moved)
            fsync_directory(folder.parent)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be removed ({error.strerror}); check its permissions") from None
    _delete(moved)


def finish_removals(root: Path) -> int:
    """Delete what killed removals left in a folder of runs; return their number. Raises StoreError."""
    with os.scandir(root) as inside:
        left = [Path(entry.path) for entry in inside if entry.name.startswith(REMOVING_PREFIX) and entry.is_dir()]
    for folder in left:
        _delete(folder)
    return len(left)


def _delete(moved: Path) -> None:
    try:
        shutil.rmtree(moved)
        fsync_directory(moved.parent)
    except FileNotFoundError:
        pass  # another process was about it, too
    except OSError as error:
        raise StoreError(
            f"{moved}: could not be deleted ({error.strerror}); the run is no longer listed, delete the folder yourself"
        ) from None


_PROCESSES: Final = Path("/proc")
_WRITES: Final = os.O_WRONLY | os.O_RDWR


def writer_in(folder: Path) -> int | None:
    """A process that has a file below the folder open for writing; None if there is none, or that is unknown (another
    system, or processes of another user)."""
    inside = f"{folder.resolve()}{os.sep}"
    with contextlib.suppress(OSError), os.scandir(_PROCESSES) as processes:
        for process in processes:
            if process.name.isdigit() and _writes(Path(process.path), inside):
                return int(process.name)
    return None


def _writes(process: Path, inside: str) -> bool:
    with contextlib.suppress(OSError), os.scandir(process / "fd") as descriptors:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                if str(Path(descriptor.path).readlink()).startswith(inside) and _is_to_write(process, descriptor.name):
                    return True
    return False


def _is_to_write(process: Path, descriptor: str) -> bool:
    for line in (process / "fdinfo" / descriptor).read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return bool(int(value, 8) & _WRITES)
    return False
