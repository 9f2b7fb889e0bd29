"""Locks a corpus folder, so that only one process at a time reads, changes and writes the corpus."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows cannot lock a folder; the user must not run two writers at once
    fcntl = None


@contextmanager
def corpus_lock(folder: Path, waiting: Callable[[], None] = lambda: None) -> Generator[None]:
    """Lock an existing folder; `waiting` is called once if another process has the lock. Raises OSError.

    The lock is on the folder itself: it leaves no file, and it is released when the process ends.
    """
    if fcntl is None:
        yield
        return
    while True:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(held, fcntl.LOCK_EX)
            # Another folder may have replaced this one in the meantime.
            if not os.path.samestat(os.fstat(held), folder.stat()):
                continue
            yield
            return
        finally:
            os.close(held)
