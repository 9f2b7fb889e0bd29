"""What every use of DuckDB shares: where it spills, file names that stand for themselves, and rows as dictionaries."""

import atexit
import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import duckdb

# A folder may be called anything: characters that DuckDB reads as a pattern stand for themselves.
_LITERAL: Final = str.maketrans({character: f"[{character}]" for character in "*?["})


_SPILLED: Final = "voiceprobe-spill-"
_LOCK: Final = "lock"


@cache
def spill_folder() -> str:
    """A folder for what statements cannot hold in memory, which may be transcripts: only this user can read it.

    DuckDB's own choice is the current folder. It is removed when the process ends, and where the process is killed, by
    the next one that needs such a folder.
    """
    _remove_of_killed()
    unnamed = Path(tempfile.mkdtemp(prefix="." + _SPILLED))
    fcntl.flock(os.open(unnamed / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX)
    # By the time it has the name that others look for, it is locked.
    folder = unnamed.rename(unnamed.with_name(unnamed.name.removeprefix(".")))
    atexit.register(remove_spill_folder)
    return str(folder)


def remove_spill_folder() -> None:
    """Remove the folder, if there is one: for a process that ends without what is registered for its end."""
    if spill_folder.cache_info().currsize:
        shutil.rmtree(spill_folder(), ignore_errors=True)


def _remove_of_killed() -> None:
    """Remove the folders of this user whose process holds no lock of it any more."""
    for folder in Path(tempfile.gettempdir()).glob(_SPILLED + "*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                continue
            with (folder / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def literal_path(path: str) -> str:
    """A file's path as DuckDB reads exactly that file, to be bound as a value."""
    return path.translate(_LITERAL)


def quoted_path(path: str) -> str:
    """A file's path as it stands in a statement."""
    return "'" + literal_path(path).replace("'", "''") + "'"


def dictionaries(cursor: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """All rows of a statement that was executed, by the names of the columns."""
    names = [column[0] for column in cursor.description or []]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
