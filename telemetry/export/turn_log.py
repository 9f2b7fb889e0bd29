"""The turns that a process has finished and not yet handed on: what remains of one that is killed outright.

A finished turn waits a fraction of a second for its batch. Until somebody else answers for it, it stands in the
write-ahead log: one write into the system's cache, without fsync, which survives the process though not the machine.
"""

import logging
from pathlib import Path

import msgspec

from telemetry.export.wal import SUFFIX, LogFile, LogRecord
from telemetry.model.turns import Turn

_logger = logging.getLogger(__name__)


class TurnLog:
    """The turns of one process, in two log files at most: the older goes when all in it has been handed on."""

    def __init__(self, directory: Path, owner: str) -> None:
        """Raises OSError."""
        self._directory, self._owner, self._next_number = directory, owner, 0
        self._encoder = msgspec.json.Encoder()
        self._older: LogFile | None = None
        self._older_until = 0  # the older file may go when so many spans have been handed on
        self._newer = self._create()
        self._has_failed = False

    def note(self, turn: Turn) -> None:
        """Keep a turn that was just emitted. Never raises: a disk that fails is said once, and the run goes on."""
        if self._has_failed:
            return
        try:
            self._newer.append(LogRecord("turn", 1, self._encoder.encode(turn)), durable=False)
        except UnicodeError:
            return  # an endpoint's lone surrogate; the span carries it as U+FFFD, JSON cannot
        except OSError as error:
            self._give_up(error)

    def settle(self, handed_on: int, waiting: int) -> None:
        """Forget what others answer for by now. Of all spans so far `handed_on` were taken, spooled, refused or
        dropped, in the order in which they were emitted, and `waiting` come after them. Never raises."""
        if self._has_failed:
            return
        try:
            if self._older is not None and handed_on >= self._older_until:
                older, self._older = self._older, None
                older.remove()
            if self._older is None and not self._newer.is_empty:
                fresh = self._create()
                self._older, self._older_until, self._newer = self._newer, handed_on + waiting, fresh
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Everything has been handed on: nothing is left behind. Raises OSError."""
        for log in (self._older, self._newer):
            if log is not None:
                log.remove()

    def _create(self) -> LogFile:
        path = self._directory / f"{self._owner}-turns-{self._next_number:06d}{SUFFIX}"
        self._next_number += 1
        return LogFile.create(path)

    def _give_up(self, error: OSError) -> None:
        _logger.warning("turns are kept in memory only until they are sent: %s", error)
        self._has_failed = True
