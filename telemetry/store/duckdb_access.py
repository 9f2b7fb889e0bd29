"""What every use of DuckDB shares: where it spills, file names that stand for themselves, and rows as dictionaries."""

import atexit
import shutil
import tempfile
from functools import cache
from typing import Any, Final

import duckdb

# A folder may be called anything: characters that DuckDB reads as a pattern stand for themselves.
_LITERAL: Final = str.maketrans({character: f"[{character}]" for character in "*?["})


@cache
def spill_folder() -> str:
    """A folder for what statements cannot hold in memory, which may be transcripts: only this user can read it.

    DuckDB's own choice is the current folder. It is removed when the process ends.
    """
    folder = tempfile.mkdtemp(prefix="voiceprobe-spill-")
    atexit.register(remove_spill_folder)
    return folder


def remove_spill_folder() -> None:
    """Remove the folder, if there is one: for a process that ends without what is registered for its end."""
    if spill_folder.cache_info().currsize:
        shutil.rmtree(spill_folder(), ignore_errors=True)


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
