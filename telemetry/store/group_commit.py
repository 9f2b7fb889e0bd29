"""Group commit: requests that arrive within a short window share one append, and each waits until it is durable."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from telemetry.model.errors import StoreError
from telemetry.store.schema import Batch
from telemetry.store.writer import AppendedTables, StoreWriter

WINDOW_S: Final = 0.03
PENDING_ROWS_MAX: Final = 200_000


class Overloaded(StoreError):  # noqa: N818 - reads as what happened
    """More waits to be written than may be kept in memory."""


@dataclass(slots=True)
class _Request:
    batch: Batch
    done: Future[None] = field(default_factory=Future[None])

    def __post_init__(self) -> None:
        # Whoever waits may go away (a client that hangs up); the batch is written all the same.
        self.done.set_running_or_notify_cancel()


class GroupCommit:
    """A thread between the receivers and the writer.

    `on_stored` is called in that thread with what each append added, after it is durable.
    """

    def __init__(
        self,
        writer: StoreWriter,
        *,
        window_s: float = WINDOW_S,
        pending_rows_max: int = PENDING_ROWS_MAX,
        on_stored: Callable[[AppendedTables], None] = lambda _appended: None,
    ) -> None:
        self._writer = writer
        self._window_s = window_s
        self._pending_rows_max = pending_rows_max
        self._on_stored = on_stored
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._pending_lock = threading.Lock()
        self._pending_rows = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch) -> Future[None]:
        """A future which ends when the batch is durable, or with the StoreError that prevented it.

        Raises Overloaded at once when too much waits already, or after `close`.
        """
        request = _Request(batch)
        with self._pending_lock:
            if self._closed:
                raise Overloaded("the store is closing; send it again")
            if self._pending_rows and self._pending_rows + batch.rows > self._pending_rows_max:
                raise Overloaded(f"{self._pending_rows} rows wait to be written; send it again")
            self._pending_rows += batch.rows
            self._queue.put(request)
        return request.done

    def close(self) -> None:
        """Write everything that was submitted, then end."""
        with self._pending_lock:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        open_ = True
        while open_:
            request = self._queue.get()
            if request is None:
                return
            group, open_ = self._gather(request)
            self._store(group)

    def _gather(self, first: _Request) -> tuple[list[_Request], bool]:
        group, until = [first], time.monotonic() + self._window_s
        while (left := until - time.monotonic()) > 0:
            try:
                request = self._queue.get(timeout=left)
            except queue.Empty:
                break
            if request is None:
                return group, False
            group.append(request)
        return group, True

    def _store(self, group: list[_Request]) -> None:
        try:
            self._append(group)
        except StoreError as error:
            self._end(group, error)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, and the next group must be tried
            if len(group) == 1:
                self._end(group, error)
                return
            # One request that cannot be written must not take its neighbors with it.
            for request in group:
                self._store([request])
        else:
            self._end(group, None)

    def _append(self, group: list[_Request]) -> None:
        appended = self._writer.append(
            Batch(
                turns=[turn for request in group for turn in request.batch.turns],
                spans=[span for request in group for span in request.batch.spans],
                points=[point for request in group for point in request.batch.points],
            )
        )
        self._on_stored(appended)

    def _end(self, group: list[_Request], failure: BaseException | None) -> None:
        with self._pending_lock:
            self._pending_rows -= sum(request.batch.rows for request in group)
        for request in group:
            if failure is None:
                request.done.set_result(None)
            else:
                request.done.set_exception(failure)
