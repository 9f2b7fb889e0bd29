"""The turns that a process has finished and not yet handed on, on disk: what remains of one that is killed outright.

A finished turn waits a fraction of a second for its batch. Until somebody else answers for it, it stands in the
log: one write into the system's cache, without fsync, which survives the process though not the machine.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from telemetry.model.turns import Turn

_logger = logging.getLogger(__name__)

SUFFIX: Final = ".turns"
_OWNER_ONLY: Final = 0o600  # a turn may hold what callers said
_OPEN: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class TurnLog:
    """The write-ahead log of one process: two files in turn, the older removed when all in it has been handed on."""

    def __init__(self, directory: Path, owner: str) -> None:
        """Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._paths = [directory / f"{owner}-{half}{SUFFIX}" for half in ("a", "b")]
        self._encoder = msgspec.json.Encoder()
        self._file: int | None = os.open(self._paths[0], _OPEN, _OWNER_ONLY)
        self._is_empty = True
        self._older_until: int | None = None  # the older file may go when so many spans have been handed on

    def note(self, turn: Turn) -> None:
        """Keep a turn that was just emitted. Never raises: a disk that fails is said once, and the run goes on."""
        if self._file is None:
            return
        try:
            os.write(self._file, self._encoder.encode(turn) + b"\n")
        except UnicodeError:
            return  # an endpoint's lone surrogate; the span carries it as U+FFFD, a line of JSON cannot
        except OSError as error:
            _logger.warning("turns are kept in memory only until they are sent: %s", error)
            os.close(self._file)
            self._file = None
        self._is_empty = False

    def settle(self, handed_on: int, waiting: int) -> None:
        """Forget what others answer for by now. Of all spans so far `handed_on` were taken, spooled, refused or
        dropped, in the order in which they were emitted, and `waiting` come after them."""
        if self._file is None:
            return
        if self._older_until is not None and handed_on >= self._older_until:
            self._paths[1].unlink(missing_ok=True)
            self._older_until = None
        if self._older_until is None and not self._is_empty:
            os.close(self._file)
            self._paths.reverse()
            self._file = os.open(self._paths[0], _OPEN, _OWNER_ONLY)
            self._is_empty, self._older_until = True, handed_on + waiting

    def close(self) -> None:
        """Everything has been handed on: nothing is left behind."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        for path in self._paths:
            path.unlink(missing_ok=True)


def left_behind(directory: Path) -> Iterator[tuple[Path, list[Turn]]]:
    """The logs of processes that ended without a goodbye, with their turns; half a line at the end is left out."""
    decoder = msgspec.json.Decoder(Turn)
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        turns: list[Turn] = []
        for line in path.read_bytes().splitlines():
            try:
                turns.append(decoder.decode(line))
            except msgspec.MsgspecError:
                continue
        yield path, turns
