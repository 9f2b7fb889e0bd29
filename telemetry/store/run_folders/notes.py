"""What people write about a run: a file for each run in a folder `notes` beside it."""

import contextlib
import os
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from telemetry.model.errors import StoreError
from telemetry.store.private_files import fsync_directory, make_folder, write_durably

LONGEST_NOTE_CHARS: Final = 2000
_SUFFIX: Final = ".txt"
_LONGEST_NAME_BYTES: Final = 240


def read_notes(folder: Path | None) -> dict[str, str]:
    """The notes of a folder, by run; empty where there are none, or they cannot be read."""
    found: dict[str, str] = {}
    if folder is None:
        return found
    with contextlib.suppress(OSError), os.scandir(folder) as inside:
        for each in inside:
            if each.name.endswith(_SUFFIX) and not each.name.startswith("."):
                with contextlib.suppress(OSError):
                    text = Path(each.path).read_text(encoding="utf-8", errors="replace")
                    found[unquote(each.name.removesuffix(_SUFFIX))] = text[:LONGEST_NOTE_CHARS].strip()
    return found


def write_note(folder: Path, run_id: str, text: str) -> None:
    """Keep a note: on the disk when this returns, whole or not at all. An empty one takes the note away. Raises
    StoreError."""
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
