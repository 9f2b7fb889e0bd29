"""The rollouts of a store as they were last read: logs grow for weeks, and are read again once they changed."""

import os
from pathlib import Path
from threading import Lock

from telemetry.store.rollout_log import FOLDER, HEAD_NAME, LOG_NAME, PLAN_NAME, RolloutRecord, read_rollouts

# Of every file: its name, its inode, when it was changed, its size.
RolloutStamp = tuple[tuple[str, int, int, int], ...]


class RolloutMemory:
    """What `read_rollouts` answers, kept until a file of a log changes; for several threads."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._lock = Lock()
        self._kept: tuple[RolloutStamp, tuple[RolloutRecord, ...]] | None = None

    def stamp(self) -> RolloutStamp:
        """Changes with every verdict, and with whatever else happens to the logs."""
        found: list[tuple[str, int, int, int]] = []
        try:
            names = sorted(each.name for each in os.scandir(self._store / FOLDER) if each.is_dir(follow_symlinks=False))
        except OSError:
            return ()
        for name in names:
            for file in (PLAN_NAME, LOG_NAME, HEAD_NAME):
                try:
                    stat = (self._store / FOLDER / name / file).stat()
                except OSError:
                    continue
                found.append((f"{name}/{file}", stat.st_ino, stat.st_ctime_ns, stat.st_size))
        return tuple(found)

    def read(self) -> tuple[RolloutRecord, ...]:
        """Every rollout, by name. Raises StoreError when the folder cannot be read."""
        with self._lock:
            before = self.stamp()
            if self._kept is not None and self._kept[0] == before:
                return self._kept[1]
            found = read_rollouts(self._store)
            # What was written meanwhile is read by the next one; what could not be read may be repaired unseen.
            is_sound = bool(before) and not any(each.faults for each in found)
            self._kept = (before, found) if is_sound and self.stamp() == before else None
            return found
