"""One writer of a corpus folder at a time: who changes a corpus holds its lock from reading it to having written it."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no lock on a folder: there, two writers at once are the user's to avoid
    fcntl = None


@contextmanager
def corpus_lock(folder: Path, waiting: Callable[[], None] = lambda: None) -> Generator[None]:
    """Hold the lock of a folder that is there. `waiting` is called once if somebody else has it. Raises OSError.

    The lock is on the folder itself: no file is left in it, and it is released with the process that holds it.
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
            # While this one waited, another folder may have been put in its place.
            if not os.path.samestat(os.fstat(held), folder.stat()):
                continue
            yield
            return
        finally:
            os.close(held)
