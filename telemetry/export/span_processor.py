"""Delivery of ended spans to a collector or the disk, in the background: nothing waits, and every loss is counted.

Not the SDK's BatchSpanProcessor: a full queue there drops the oldest spans with only a log line, its flush has no
deadline, and it wakes its thread from the caller's. Here an ended span is one write to the log (`span_log`) or one
append to a bounded queue, losses are numbers, and one thread (a greenlet under gevent) sends the oldest data.
"""

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, ParamSpec, Protocol, TypeVar

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from telemetry.export.encoded_spans import EncodedRequest, EncodedSpan, encoded_by_sdk, request_payload
from telemetry.export.otlp_http import Delivery
from telemetry.export.span_log import BATCH_SPANS, FULL_BYTES, LogRecord, SpanLog, spans_record

_logger = logging.getLogger(__name__)

_POLL_S: Final = 0.05
_LINGER_S: Final = 0.5  # a batch that is not full waits no longer than this
_FIRST_RETRY_S: Final = 0.5
_LAST_RETRY_S: Final = 5.0
_PACE_S: Final = 0.0003
# At the end the disk is given time: no audio is left to disturb, and on a busy machine an fsync takes seconds.
_SAVE_WITHIN_S: Final = 30.0
_MAX_WAITING_METRICS: Final = 120  # two minutes of one report a second

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Sender(Protocol):
    """Delivers requests to the collector."""

    def send(self, request: EncodedRequest) -> Delivery:
        """Deliver one request; never raises because of the collector or the network."""
        ...


@dataclass(frozen=True, slots=True)
class ExportStats:
    """The spans so far by destination. `spooled_spans` are on disk, safe from a crash of the machine; `dropped_spans`
    are lost, the first of them for `drop_reason`, and `rejected_spans` were permanently refused by the collector (both
    count as loss). `waiting_spans` are not delivered yet. `failure` is None while the collector accepts requests."""

    exported_spans: int
    spooled_spans: int
    dropped_spans: int
    rejected_spans: int
    waiting_spans: int
    failure: str | None
    drop_reason: str | None


def _off_the_loop(call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Run a call that blocks on the disk: under gevent in a native thread, so that an fsync stalls no audio."""
    if "gevent.monkey" in sys.modules:
        from gevent import get_hub, monkey

        if monkey.is_module_patched("threading"):
            return get_hub().threadpool.apply(call, args, kwargs)
    return call(*args, **kwargs)


class SpoolingSpanProcessor(SpanProcessor):
    """A span processor of the SDK that delivers to `sender` from a log on disk.

    Without a log, or if it is full, spans wait in a queue in memory, and those that do not fit are counted. Without a
    sender everything stays in the log; without either, spans are dropped on purpose and not counted as lost. Raises
    OSError if the log cannot be created.
    """

    def __init__(
        self,
        resource: bytes,
        sender: Sender | None,
        make_log: Callable[[], SpanLog] | None,
        *,
        batch: int = BATCH_SPANS,
        queue: int,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resource, self._sender, self._make_log = resource, sender, make_log
        self._batch, self._capacity = batch, queue
        self._clock_s = clock_s
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._queue: deque[EncodedSpan] = deque()
        self._metrics: deque[EncodedRequest] = deque(maxlen=_MAX_WAITING_METRICS)
        self._unsent: EncodedRequest | None = None  # of memory, and neither taken nor refused yet
        self._log = self._make_log() if self._make_log else None
        self._log_problem = ""
        self._drop_lock = threading.Lock()
        self._exported = self._dropped = self._rejected = 0
        self._drop_reason: str | None = None
        self._failure: str | None = None  # why the collector takes no data; None while it does
        self._retry_at_s, self._retry_s = 0.0, _FIRST_RETRY_S
        self._last_batch_s = self._last_sync_s = self._clock_s()
        self._flushes_asked = self._flushes_done = 0
        self._closing = self._closed = False
        self._thread: threading.Thread | None = None
        if self._sender is not None or self._log is not None:
            self._thread = threading.Thread(target=self._run, name="telemetry-delivery", daemon=True)
            self._thread.start()

    # Called by the caller's threads.

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing: only ended spans are delivered."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue an ended span of the SDK."""
        self.offer_spans((encoded_by_sdk(span),))

    def offer_spans(self, spans: Sequence[EncodedSpan], turns: int = 0) -> None:
        """Queue ended spans, of which `turns` are turns; those without room are dropped and counted. Never waits."""
        if self._pid != os.getpid():
            self._after_fork()
        if self._thread is None:
            return
        if self._closed:
            self._drop(len(spans), "they ended after the end of the export")
        elif self._log is None or not self._is_logged(self._log, spans_record(spans, turns)):
            fitting = max(0, self._capacity - len(self._queue))
            self._queue.extend(spans[:fitting])
            self._drop(len(spans[fitting:]), self._log_problem or f"{self._capacity} spans were waiting already")

    def offer_metrics(self, request: EncodedRequest) -> None:
        """Queue one report of metrics; in memory it replaces the oldest if too many wait."""
        if self._thread is None or self._closed:
            return
        record = LogRecord("metrics", request.items, 0, request.payload)
        if self._log is None or not self._is_logged(self._log, record):
            self._metrics.append(request)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return whether, within the time, everything so far was acknowledged, refused for good or spooled."""
        if self._thread is None:
            return True
        self._flushes_asked += 1
        wanted, deadline_s = self._flushes_asked, self._clock_s() + timeout_millis / 1e3
        # Polled: the worker may be a greenlet of another thread's hub, where waking one another is not portable.
        while self._flushes_done < wanted and self._thread.is_alive():
            if self._clock_s() >= deadline_s:
                return False
            time.sleep(0.005)
        return self.stats().waiting_spans == 0

    def shutdown(self, timeout_s: float = 5.0) -> None:
        """Deliver what can be delivered in the time, leave the rest in the log, and count what had to be dropped.

        With a log, its disk is given more time.
        """
        if self._closed or self._thread is None:
            return
        deadline_s = self._clock_s() + timeout_s
        self.force_flush(int(timeout_s * 1e3))
        self._closing = True
        self._thread.join(_SAVE_WITHIN_S if self._log else max(0.5, deadline_s - self._clock_s()))
        self._closed = True
        self._drop(self._in_memory(), self._log_problem or "they were not taken before the process ended")
        self._queue.clear()
        self._unsent = None

    def stats(self) -> ExportStats:
        """Return the number of spans so far by destination."""
        pending = 0 if self._log is None else self._log.pending_spans
        spooled = 0 if self._log is None else pending if self._closed else self._log.durable_spans
        return ExportStats(
            exported_spans=self._exported,
            spooled_spans=spooled,
            dropped_spans=self._dropped,
            rejected_spans=self._rejected,
            waiting_spans=self._in_memory() + pending - spooled,
            failure=self._failure,
            drop_reason=self._drop_reason,
        )

    def _after_fork(self) -> None:
        """Start empty in a child: queue, log and thread are the parent's."""
        try:
            self._begin()
        except OSError as error:
            _logger.warning("telemetry is kept in memory only until it is sent: %s", error)
            self._make_log = None
            self._begin()

    def _is_logged(self, log: SpanLog, record: LogRecord) -> bool:
        try:
            problem = "" if log.append(record) else "the spool is full"
        except OSError as error:
            problem = f"the spool takes no more: {error}"
        if problem and not self._log_problem:
            _logger.warning("%s; spans wait in memory, and are dropped and counted when it is full", problem)
        self._log_problem = problem
        return not problem

    def _in_memory(self) -> int:
        unsent = self._unsent
        return len(self._queue) + (unsent.items if unsent is not None and unsent.signal == "traces" else 0)

    def _drop(self, spans: int, reason: str) -> None:
        with self._drop_lock:
            if spans and not self._dropped:
                self._drop_reason = reason
            self._dropped += spans

    # The delivering thread.

    def _run(self) -> None:
        mine = os.getpid()
        while not self._closing:
            if os.getpid() != mine:
                return  # under gevent a fork takes this greenlet along; the child starts a delivery of its own
            asked = self._flushes_asked
            hurry = asked > self._flushes_done
            if hurry:
                self._retry_at_s = 0.0  # somebody waits: try the collector once more now
            self._deliver(hurry=hurry)
            self._save(hurry=hurry)
            if hurry:
                self._flushes_done = asked
            else:
                time.sleep(_POLL_S)
        self._save(hurry=True)
        if self._log is not None:
            self._log.close()

    def _deliver(self, *, hurry: bool) -> None:
        """Send waiting data, the oldest first, as long as the collector accepts it."""
        while self._sender is not None and not self._closing and not self._is_held_off() and (hurry or self._is_due()):
            try:
                request = self._oldest()
                if request is None:
                    return
                self._last_batch_s = self._clock_s()
                delivery = self._sender.send(request)
                self._note(request, delivery)
                if delivery.outcome == "failed":
                    return
                if request is self._unsent:
                    self._unsent = None
                elif self._log is not None:
                    self._log.delivered()
            except OSError as error:
                self._outage(f"the spool cannot be read: {error}")
                return
            time.sleep(_PACE_S)

    def _is_held_off(self) -> bool:
        return self._failure is not None and self._clock_s() < self._retry_at_s

    def _is_due(self) -> bool:
        waiting = self._in_memory() + (0 if self._log is None else self._log.pending_spans)
        return waiting >= self._batch or self._clock_s() - self._last_batch_s >= _LINGER_S

    def _oldest(self) -> EncodedRequest | None:
        if self._unsent is None and self._log is not None and (request := self._log.oldest()) is not None:
            return request
        if self._unsent is None:
            self._unsent = self._metrics.popleft() if self._metrics else self._queued_spans()
        return self._unsent

    def _queued_spans(self) -> EncodedRequest | None:
        spans: list[EncodedSpan] = []
        size_bytes = 0
        for span in islice(self._queue, self._batch):
            if size_bytes >= FULL_BYTES:
                break
            spans.append(span)
            size_bytes += len(span.field)
        if not spans:
            return None
        self._unsent = EncodedRequest("traces", len(spans), request_payload(self._resource, spans))
        for _ in spans:  # after the request counts them: for an instant twice, at no moment not at all
            self._queue.popleft()
        return self._unsent

    def _note(self, request: EncodedRequest, delivery: Delivery) -> None:
        if delivery.outcome == "failed":
            self._outage(delivery.reason)
            return
        if self._failure is not None:
            _logger.info("the telemetry collector takes data again")
        self._failure, self._retry_s = None, _FIRST_RETRY_S
        if request.signal != "traces":
            return
        lost = request.items if delivery.outcome == "refused" else delivery.rejected_items
        if lost:
            _logger.warning("the telemetry collector refused %d spans for good: %s", lost, delivery.reason)
        self._rejected += lost
        self._exported += request.items - lost

    def _outage(self, reason: str) -> None:
        if self._failure is None:
            what = "spans are kept on disk" if self._log else "spans wait in memory, and are dropped when it is full,"
            _logger.warning("the telemetry collector takes no data (%s); %s until it does", reason, what)
        self._failure = reason
        self._retry_at_s = self._clock_s() + self._retry_s
        self._retry_s = min(self._retry_s * 2, _LAST_RETRY_S)

    def _save(self, *, hurry: bool) -> None:
        """Sync the log to disk while the collector accepts nothing."""
        is_due = hurry or self._clock_s() - self._last_sync_s >= _LINGER_S
        if self._log is None or not is_due or not (self._sender is None or self._failure is not None or self._closing):
            return
        self._last_sync_s = self._clock_s()
        try:
            _off_the_loop(self._log.sync)
        except OSError as error:
            self._drop_reason = self._drop_reason or f"the spool takes no more: {error}"
            _logger.warning("spans on disk may not survive a failure of this machine: %s", error)
