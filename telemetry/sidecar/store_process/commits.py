"""Commits decoded groups to segments in a thread of its own: at once after a pause, otherwise every `INTERVAL_S`."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.model.errors import StoreError
from telemetry.sidecar.store_process.fault_board import FaultBoard
from telemetry.sidecar.store_process.groups import DecodedGroup, decode_group, take_again
from telemetry.store.ingest_log import IngestLog, Position

INTERVAL_S: Final = 0.4
_RETRY_S: Final = 0.5
EXIT_FAILED: Final = 70
# What was decoded and waits to be committed stands in memory.
WAITING_ROWS_MAX: Final = 200_000
WAITING_BYTES_MAX: Final = 256 << 20
_COMMIT_FAULT: Final = "commit"
_RECORD_FAULT: Final = "record"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Logged:
    group: DecodedGroup
    begin: Position
    end: Position


class Committer:
    """Takes groups in the order of the log. `write` stores groups for good and raises StoreError if it could not."""

    def __init__(
        self,
        write: Callable[[Sequence[DecodedGroup]], None],
        log: IngestLog,
        faults: FaultBoard,
        *,
        rows_max: int = WAITING_ROWS_MAX,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._write = write
        self._log = log
        self._faults = faults
        self._rows_max = rows_max
        self._interval_s = interval_s
        self._changed = threading.Condition()
        self._waiting: list[_Logged] = []
        self._rows = 0
        self._bytes = 0
        self._failure: str | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run_or_exit, name="commits", daemon=True)
        self._thread.start()

    def wait_for_room(self) -> None:
        """Wait while too much waits to be committed. Raises StoreError if it cannot be committed now."""
        with self._changed:
            while self._is_full and self._failure is None:
                self._changed.wait()
            if self._is_full and self._failure is not None:
                self._faults.set(_COMMIT_FAULT, self._failure, stops_storing=True)
                raise StoreError(self._failure)

    def add(self, group: DecodedGroup, begin: Position, end: Position) -> None:
        """Commit a group soon; its records stand between two positions of the log."""
        with self._changed:
            self._waiting.append(_Logged(group, begin, end))
            self._rows += group.rows
            self._bytes += group.size_bytes
            self._changed.notify_all()

    @property
    def waiting_rows(self) -> int:
        """How many rows are in the log only."""
        return self._rows

    def close(self) -> None:
        """Commit what waits, then end; what cannot be committed stays in the log."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def _is_full(self) -> bool:
        return self._rows >= self._rows_max or self._bytes >= WAITING_BYTES_MAX

    def _run_or_exit(self) -> None:
        try:
            self._run()
        except BaseException:  # noqa: BLE001 - nobody else hears of it
            # Nothing would be committed any more; the next life commits what is in the log.
            _log.exception("the thread that commits has failed, and the process ends with it")
            os._exit(EXIT_FAILED)

    def _run(self) -> None:
        last_began_s = -self._interval_s
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                pause_s = _RETRY_S if self._failure is not None else self._interval_s
                due_s = last_began_s + pause_s
                while not self._closing and (self._failure is not None or not self._is_full):
                    left_s = due_s - time.monotonic()
                    if left_s <= 0:
                        break
                    self._changed.wait(left_s)
                taken = tuple(self._waiting)
            last_began_s = time.monotonic()
            self._commit(taken)
            if self._failure is not None and self._closing:
                return

    def _commit(self, taken: tuple[_Logged, ...]) -> None:
        try:
            try:
                self._write([each.group for each in taken])
            except StoreError:
                raise
            except Exception:  # noqa: BLE001 - one request must not keep the others from being committed
                _log.exception("a commit failed; its requests are committed one by one")
                self._write_apart(taken)
        except StoreError as error:
            with self._changed:
                self._failure = str(error)
                self._faults.set(_COMMIT_FAULT, str(error), stops_storing=self._is_full)
                self._changed.notify_all()
            return
        self._log.committed(taken[-1].end)
        with self._changed:
            del self._waiting[: len(taken)]
            self._rows -= sum(each.group.rows for each in taken)
            self._bytes -= sum(each.group.size_bytes for each in taken)
            self._failure = None
            self._faults.set(_COMMIT_FAULT, None)
            self._changed.notify_all()

    def _write_apart(self, taken: tuple[_Logged, ...]) -> None:
        """Commit request by request; one that cannot be committed goes to the quarantine."""
        for record, position in self._log.read(taken[0].begin, taken[-1].end):
            request = take_again(0, record)
            if request is None:
                continue
            try:
                self._write([decode_group([request])])
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is kept aside
                kept = self._log.to_quarantine(record, position)
                sentence = f"{kept}: holds a request that could not be committed ({type(error).__name__}: {error})"
                self._faults.set(_RECORD_FAULT, sentence)
                _log.exception("%s", sentence)
