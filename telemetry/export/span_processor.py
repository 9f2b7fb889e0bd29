"""From ended spans to a collector or the disk, in the background: nothing waits, nothing is lost without being counted.

Not the SDK's BatchSpanProcessor: a full queue there drops the oldest spans with only a log line, its flush has no
deadline, and it wakes its thread from the caller's. Here an ended span is one append to a bounded queue, losses are
numbers, and one thread (a greenlet under gevent) sends, spools and re-sends.
"""

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, ParamSpec, Protocol, TypeVar

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from telemetry.export.encoded_spans import EncodedSpan, RequestEncoder, encoded_by_sdk
from telemetry.export.otlp_http import Delivery
from telemetry.export.spool import Spool, SpoolRecord

_logger = logging.getLogger(__name__)

_POLL_S: Final = 0.05
_LINGER_S: Final = 0.5  # a batch that is not full waits no longer than this
_FULL_BYTES: Final = 2**20  # a request is no longer than this and one span; collectors refuse one of 20 MiB
_FIRST_RETRY_S: Final = 0.5
_LAST_RETRY_S: Final = 5.0
_PACE_S: Final = 0.0003
# At the end the disk is given time: no audio is left to disturb, and on a busy machine an fsync takes seconds.
_SAVE_WITHIN_S: Final = 30.0
_MAX_WAITING_METRICS: Final = 120  # two minutes of one report a second

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Sender(Protocol):
    """Whoever takes a record to the collector."""

    def send(self, record: SpoolRecord) -> Delivery:
        """Deliver one record; never raises for the collector's or the network's sake."""
        ...


@dataclass(frozen=True, slots=True)
class ExportStats:
    """What became of every span so far. `spooled_spans` lie on disk now; `dropped_spans` are lost, the first of them
    for `drop_reason`, and `rejected_spans` were refused by the collector for good (both count as loss). `waiting_spans`
    are in memory. `failure` is None while the collector takes what it is sent."""

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
    """A span processor of the SDK that delivers to `sender`, and to `spool` while that fails.

    Without a sender everything goes to the spool; without either, spans are forgotten on purpose and not counted as
    lost. Without a spool, what the collector does not take waits in the queue, and what does not fit is counted.
    """

    def __init__(
        self,
        encoder: RequestEncoder,
        sender: Sender | None,
        make_spool: Callable[[], Spool] | None,
        *,
        batch: int,
        queue: int,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._encoder, self._sender, self._make_spool = encoder, sender, make_spool
        self._batch, self._capacity = batch, queue
        self._clock_s = clock_s
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._queue: deque[EncodedSpan] = deque()
        self._metrics: deque[SpoolRecord] = deque(maxlen=_MAX_WAITING_METRICS)
        self._unsent: SpoolRecord | None = None  # encoded, and neither taken nor spooled yet
        self._in_hand = 0  # spans taken from the queue which are not accounted for yet
        self._spool = self._make_spool() if self._make_spool else None
        self._drop_lock = threading.Lock()
        self._exported = self._dropped = self._rejected = 0
        self._drop_reason: str | None = None
        self._failure: str | None = None  # why the collector takes no data; None while it does
        self._retry_at_s, self._retry_s = 0.0, _FIRST_RETRY_S
        self._last_batch_s = self._clock_s()
        self._flushes_asked = self._flushes_done = 0
        self._closing = self._closed = False
        self._thread: threading.Thread | None = None
        if self._sender is not None or self._spool is not None:
            self._thread = threading.Thread(target=self._run, name="telemetry-delivery", daemon=True)
            self._thread.start()

    # Called by the caller's threads.

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do: only ended spans travel."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue an ended span of the SDK's."""
        self.offer_spans((encoded_by_sdk(span),))

    def offer_spans(self, spans: Iterable[EncodedSpan]) -> None:
        """Queue ended spans; what does not fit into the queue is dropped and counted. Never waits."""
        if self._pid != os.getpid():
            self._begin()  # a fork: the parent's queue and thread are the parent's
        if self._thread is None:
            return
        for span in spans:
            if self._closed:
                self._drop(1, "they ended after the end of the export")
            elif len(self._queue) >= self._capacity:
                self._drop(1, f"{self._capacity} spans were waiting already")
            else:
                self._queue.append(span)

    def offer_metrics(self, record: SpoolRecord) -> None:
        """Queue one report of metrics; the oldest gives way when too many wait."""
        if self._thread is not None and not self._closed:
            self._metrics.append(record)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Whether, within the time, everything queued so far was acknowledged, refused for good or spooled."""
        if self._thread is None:
            return True
        self._flushes_asked += 1
        wanted, deadline_s = self._flushes_asked, self._clock_s() + timeout_millis / 1e3
        # Polled: the worker may be a greenlet of another thread's hub, where waking one another is not portable.
        while self._flushes_done < wanted and self._thread.is_alive():
            if self._clock_s() >= deadline_s:
                return False
            time.sleep(0.005)
        return self._waiting() == 0

    def shutdown(self, timeout_s: float = 5.0) -> None:
        """Deliver what can be delivered in the time, spool the rest, count what had to be dropped.

        Where there is a spool, its disk is given more time: what it does not take is lost.
        """
        if self._closed or self._thread is None:
            return
        deadline_s = self._clock_s() + timeout_s
        self.force_flush(int(timeout_s * 1e3))
        self._closing = True
        self._thread.join(_SAVE_WITHIN_S if self._spool else max(0.5, deadline_s - self._clock_s()))
        self._closed = True
        self._drop(self._waiting(), "they were not taken before the process ended")
        self._queue.clear()
        self._unsent = None

    def stats(self) -> ExportStats:
        """What became of every span so far."""
        return ExportStats(
            exported_spans=self._exported,
            spooled_spans=self._spool.pending_spans if self._spool else 0,
            dropped_spans=self._dropped,
            rejected_spans=self._rejected,
            waiting_spans=0 if self._closed else self._waiting(),
            failure=self._failure,
            drop_reason=self._drop_reason,
        )

    def _waiting(self) -> int:
        return len(self._queue) + self._in_hand

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
            self._deliver_metrics()
            while self._deliver_spans(hurry=hurry) and not self._closing:
                pass
            self._deliver_spooled()
            if hurry:
                self._flushes_done = asked
            else:
                time.sleep(_POLL_S)
        self._save_the_rest()

    def _deliver_metrics(self) -> None:
        while self._metrics:
            record = self._metrics.popleft()
            if not self._hand_over(record):
                self._metrics.appendleft(record)
                return

    def _deliver_spans(self, *, hurry: bool) -> bool:
        """Deliver one batch; whether another one should follow at once."""
        if self._unsent is None:
            due = hurry or len(self._queue) >= self._batch or self._clock_s() - self._last_batch_s >= _LINGER_S
            if not self._queue or not due:
                return False
            self._last_batch_s = self._clock_s()
            self._unsent = self._next_record()
        if not self._hand_over(self._unsent):
            return False
        self._unsent, self._in_hand = None, 0
        return True

    def _next_record(self) -> SpoolRecord:
        spans: list[EncodedSpan] = []
        size_bytes = 0
        while self._queue and len(spans) < self._batch and size_bytes < _FULL_BYTES:
            self._in_hand += 1  # at any moment a span is counted in one place, or in two for an instant
            spans.append(self._queue.popleft())
            size_bytes += len(spans[-1].field)
        return SpoolRecord("traces", len(spans), self._encoder.request(spans))

    def _hand_over(self, record: SpoolRecord) -> bool:
        """Send or spool a record; False when it has to wait in memory."""
        if self._sender is not None and not (self._failing() and self._clock_s() < self._retry_at_s):
            delivery = self._sender.send(record)
            self._note(record, delivery)
            if delivery.outcome != "failed":
                return True
        return self._keep(record)

    def _failing(self) -> bool:
        return self._failure is not None

    def _note(self, record: SpoolRecord, delivery: Delivery) -> None:
        if delivery.outcome == "failed":
            self._outage(delivery.reason)
            return
        if self._failing():
            _logger.info("the telemetry collector takes data again")
        self._failure, self._retry_s = None, _FIRST_RETRY_S
        if record.signal != "traces":
            return
        lost = record.items if delivery.outcome == "refused" else delivery.rejected_items
        if lost:
            _logger.warning("the telemetry collector refused %d spans for good: %s", lost, delivery.reason)
        self._rejected += lost
        self._exported += record.items - lost

    def _outage(self, reason: str) -> None:
        if not self._failing():
            what = "spans are kept on disk" if self._spool else "spans wait in memory, and are dropped when it is full,"
            _logger.warning("the telemetry collector takes no data (%s); %s until it does", reason, what)
        self._failure = reason
        self._retry_at_s = self._clock_s() + self._retry_s
        self._retry_s = min(self._retry_s * 2, _LAST_RETRY_S)

    def _keep(self, record: SpoolRecord) -> bool:
        """Put a record on the spool; False without a spool. A spool that cannot hold it counts as a loss."""
        if self._spool is None:
            return False
        try:
            kept = _off_the_loop(self._spool.append, record)
            problem = "the spool is full"
        except OSError as error:
            kept, problem = False, f"the spool takes no more: {error}"
        if not kept and record.signal == "traces":
            if not self._dropped:
                _logger.warning("%s; spans are dropped and counted", problem)
            self._drop(record.items, problem)
        return True

    def _deliver_spooled(self) -> None:
        """Re-send what is on disk, oldest first, for as long as the collector takes it."""
        if self._sender is None or self._spool is None:
            return
        while not self._closing and not (self._failing() and self._clock_s() < self._retry_at_s):
            try:
                record = _off_the_loop(self._spool.oldest)
                if record is None:
                    return
                delivery = self._sender.send(record)
                if delivery.outcome != "failed":
                    _off_the_loop(self._spool.acknowledge, record)
            except OSError as error:
                self._outage(f"the spool cannot be read: {error}")
                return
            self._note(record, delivery)
            if delivery.outcome == "failed" or len(self._queue) >= self._batch:
                return  # fresh spans go first; the disk is patient
            time.sleep(_PACE_S)

    def _save_the_rest(self) -> None:
        """On the way out everything left goes to disk; without one it stays to be counted as dropped."""
        if self._spool is None:
            return
        for record in self._metrics:
            self._keep(record)
        self._metrics.clear()
        if self._unsent is not None:
            self._keep(self._unsent)
            self._unsent, self._in_hand = None, 0
        while self._queue:
            self._keep(self._next_record())
            self._in_hand = 0
        self._spool.close()
