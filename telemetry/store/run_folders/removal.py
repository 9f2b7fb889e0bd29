"""Removing a run's folder: first out of the way under another name, then for good.

The new name is made by one rename, so a run is there or it is not, whenever the process is killed. What a killed
removal left under its new name is deleted by the next one.
"""

import contextlib
import os
import shutil
import uuid
from pathlib import Path

from telemetry.model.errors import StoreError
from telemetry.store.database import DATABASE_NAME, InUseError, owned
from telemetry.store.private_files import fsync_directory
from telemetry.store.run_folders.open_files import writer_in
from telemetry.store.run_folders.places import REMOVING_PREFIX, STORE_FOLDER


def remove_folder(folder: Path) -> None:
    """Remove the folder of a run. Raises StoreError where it is under way, is a link, or cannot be removed; then it is
    there as it was, or it is gone from the list of runs and the text says what is left."""
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
    """Delete what killed removals left in a folder of runs; how many there were. Raises StoreError."""
    with os.scandir(root) as inside:
        left = [Path(each.path) for each in inside if each.name.startswith(REMOVING_PREFIX) and each.is_dir()]
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
