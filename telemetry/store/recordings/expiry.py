"""Removes recordings of calls when their time is over.

File names say when a file was made and when it expires: nothing has to be read. A file with a time of creation in the
future, because a clock was wrong, is dated again: it expires after its own period counted from now, never later.
"""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from telemetry.store.recordings.kept_call import (
    FOLDER,
    NS_PER_S,
    UNFINISHED_SUFFIX,
    is_run_folder,
    kept_file,
)

# A clock that is corrected by less than this is as good as right.
_SLACK_S: Final = 3_600
# An unfinished file that nobody has written to for so long is left over from a machine that stopped.
_ABANDONED_S: Final = 86_400
LOOK_EVERY_S: Final = 60.0
_JUMP_S: Final = 60.0


def remove_expired(store: Path, now_unix_ns: int) -> int:
    """Remove the expired files next to a store; return their number. Files that cannot be removed stay."""
    removed = 0
    now_unix_s = now_unix_ns // NS_PER_S
    for folder in _folders(store / FOLDER):
        for entry in _entries(folder):
            removed += _remove_if_due(folder, entry.name, now_unix_s)
        with contextlib.suppress(OSError):
            folder.rmdir()  # only where it is empty
    return removed


def _remove_if_due(folder: Path, name: str, now_unix_s: int) -> int:
    path = folder / name
    if name.endswith(UNFINISHED_SUFFIX):
        with contextlib.suppress(OSError):
            if now_unix_s - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()
                return 1
        return 0
    known = kept_file(name)
    if known is None:
        return 0
    with contextlib.suppress(OSError):
        if known.expires_unix_s <= now_unix_s:
            path.unlink()
            return 1
        if known.created_unix_s > now_unix_s + _SLACK_S:
            expires_unix_s = now_unix_s + max(0, known.expires_unix_s - known.created_unix_s)
            path.rename(folder / f"{known.call}-{now_unix_s}-{expires_unix_s}{known.suffix}")
    return 0


def _folders(recordings: Path) -> list[Path]:
    return [recordings / entry.name for entry in _entries(recordings) if is_run_folder(entry.name)]


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


class Expiry:
    """Removes expired files from time to time, in a long-running process.

    If the wall clock jumps between two calls, the second one removes nothing: a clock that is wrong for a moment
    deletes nothing.
    """

    def __init__(
        self,
        store: Path,
        *,
        wall_clock_ns: Callable[[], int] = time.time_ns,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._wall_clock_ns = wall_clock_ns
        self._monotonic_s = monotonic_s
        self._last: tuple[float, float] | None = None  # the wall clock and the monotonic one, s

    def remove_due(self) -> None:
        """Remove expired files, at most once in LOOK_EVERY_S."""
        now_s, wall_ns = self._monotonic_s(), self._wall_clock_ns()
        if self._last is not None and now_s - self._last[1] < LOOK_EVERY_S:
            return
        last, self._last = self._last, (wall_ns / NS_PER_S, now_s)
        if last is not None and abs((wall_ns / NS_PER_S - last[0]) - (now_s - last[1])) > _JUMP_S:
            return
        remove_expired(self._store, wall_ns)
