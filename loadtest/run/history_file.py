"""The file of `rollout check --history`: one look at a time reads it, and writes it again as a whole."""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from loadtest.errors import UsageError
from telemetry.rollout.gate import first_history
from telemetry.rollout.history import RolloutHistory, decode_history
from telemetry.rollout.plan import RolloutPlan

# A look takes about a second; one over a large store, over the network, some tens.
WAIT_S: Final = 60.0
_AGAIN_S: Final = 0.1


@contextmanager
def one_at_a_time(file: Path | None, wait_s: float = WAIT_S) -> Generator[None]:
    """Wait until no other look reads or writes this history, so that none is lost. None: there is nothing to wait for.

    Raises UsageError where another one does not end, and where nothing can be locked. The lock is an empty file beside
    the history, because the history itself is replaced.
    """
    if file is None:
        yield
        return
    lock = file.with_name(f".{file.name}.lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"{lock} cannot be opened: {error.strerror or error}; make the folder writable") from None
    try:
        _lock(descriptor, file, wait_s)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, file: Path, wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end_s:
                raise UsageError(
                    f"{file} is in use by another look that has not ended within {wait_s:g} s; wait for it, or end it"
                ) from None
            time.sleep(_AGAIN_S)
        except OSError as error:
            raise UsageError(f"{file} cannot be locked: {error.strerror or error}; put it on another disk") from None
        else:
            return


def read_history(plan: RolloutPlan, file: Path | None, now_unix_ns: int) -> RolloutHistory:
    """The history of a file; a first one, which begins now, where there is none yet. Raises UsageError, ConfigError."""
    if file is None:
        return first_history(plan, now_unix_ns)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return first_history(plan, now_unix_ns)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from None
    return decode_history(content, str(file))
