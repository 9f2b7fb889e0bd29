"""The store process: decodes requests, makes them durable in the ingest log, answers, and commits them to segments."""

import contextlib
import fcntl
import logging
import queue
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import orjson

from telemetry.model.errors import StoreError, TelemetryError
from telemetry.objectives.slo import load_objectives
from telemetry.sidecar.forwarding.exposition import shown_in_state, with_forwarding
from telemetry.sidecar.forwarding.forwarder import Forwarding
from telemetry.sidecar.ingest_state import IngestState, count_names
from telemetry.sidecar.messages import Answer, Answered, Ask, Begun, Page, Ready, Stop, StoreOptions, Take, Unusable
from telemetry.sidecar.otlp.backlog import GROUP_S
from telemetry.sidecar.privacy.of_store import redactor_of_store
from telemetry.sidecar.prometheus import Exposition
from telemetry.sidecar.service_metrics import ServiceExposition
from telemetry.sidecar.store_process.assembly import ServiceTurns
from telemetry.sidecar.store_process.commits import Committer
from telemetry.sidecar.store_process.connection import FrontConnection
from telemetry.sidecar.store_process.fault_board import FaultBoard
from telemetry.sidecar.store_process.groups import DecodedGroup, decode_group, merged
from telemetry.sidecar.store_process.replay import replay
from telemetry.sidecar.store_process.watch import LOG_FAULT, Watch
from telemetry.store import ingest_log
from telemetry.store import manifest as manifests
from telemetry.store.compaction import Compactor
from telemetry.store.ingest_log import IngestLog
from telemetry.store.recordings.expiry import Expiry
from telemetry.store.retention import Keep
from telemetry.store.rollups.making import RollUpMaker
from telemetry.store.writer import AppendedTables, StoreWriter

# A store process whose front was killed ends within this; its successor waits for it.
_LOCK_WITHIN_S: Final = 5.0
_LOCK_EVERY_S: Final = 0.02
_GROUP_BYTES_MIN: Final = 64 << 10
_ASSUMED_BYTES_PER_S: Final = 5e6
# Under load, requests that follow one another this closely share a group: each group costs some 5 ms by itself.
_WINDOW_S: Final = 0.02
_BUSY_S: Final = 0.05
_METRICS_FAULT: Final = "metrics"
_WATCH_S: Final = 1.0

_log = logging.getLogger(__name__)


def run(connection: FrontConnection, options: StoreOptions) -> None:
    """Serve the front until it says so or closes its end; everything that was acknowledged is durable then."""
    with contextlib.ExitStack() as stack:
        try:
            process = StoreProcess(connection, options, stack)
        except TelemetryError as error:
            connection.send(Unusable(str(error)))
            return
        signal.signal(signal.SIGTERM, lambda _number, _frame: process.stop())
        connection.send(Ready())
        process.serve()


class StoreProcess:
    """The parts of a store process; `stack` ends them in the right order.

    Raises StoreError for a store that cannot be used, and ConfigError for unusable objectives.
    """

    def __init__(self, connection: FrontConnection, options: StoreOptions, stack: contextlib.ExitStack) -> None:
        self._connection = connection
        self._options = options
        self._directory = directory = Path(options.store)
        self._state = IngestState()
        objectives = load_objectives(Path(options.slo) if options.slo is not None else None)
        self._exposition = Exposition(objectives)
        self._service_exposition = ServiceExposition(objectives)
        self._exposition.watch(self._state)
        self._faults = FaultBoard(connection.send)
        _wait_for_lock(directory)
        self._writer = stack.enter_context(StoreWriter(directory, keep_text=options.keep_text))
        self._log = IngestLog(directory / ingest_log.FOLDER, directory / manifests.QUARANTINE_FOLDER)
        stack.callback(self._log.close)
        names = Path(options.redact_names) if options.redact_names is not None else None
        self._redactor = redactor_of_store(directory, keep_text=options.keep_text, names=names)
        self._service_turns = ServiceTurns(
            self._writer, self._stored, self._state, self._faults, revised=self._service_exposition.observe_revised
        )
        self._forwarding = Forwarding(directory, options.destinations, self._faults, names=names)
        replay(self._log, directory / ingest_log.FOLDER, self._write, self._redactor)
        self._writer.remove_redundant()
        self._service_turns.recover()
        stack.callback(self._service_turns.close)
        keep = Keep(options.keep_age_ns, options.keep_bytes)
        stopping = threading.Event()
        roll_up = RollUpMaker(is_stopping=stopping.is_set)
        compactor = Compactor(self._writer, roll_up=roll_up, keep=keep, stopping=stopping)
        compactor.start()
        stack.callback(compactor.stop)
        self._watch_for = Watch(self._log, self._writer, compactor, self._faults)
        self._watch_for.look()
        self._expiry = Expiry(directory)
        self._committer = Committer(self._write, self._log, self._faults)
        stack.callback(self._committer.close)
        self._forwarding.start()
        stack.callback(self._forwarding.stop)
        self._queue: queue.SimpleQueue[Take | None] = queue.SimpleQueue()
        self._pages: queue.SimpleQueue[Ask] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._bytes_per_s = _ASSUMED_BYTES_PER_S
        self._last_end_s = 0.0

    def stop(self) -> None:
        """Answer what waits, then end."""
        self._queue.put(None)

    def serve(self) -> None:
        """Answer requests until the front has gone or asked to stop."""
        for task in (self._receive, self._render, self._watch):
            threading.Thread(target=task, name=task.__name__.strip("_"), daemon=True).start()
        open_ = True
        while open_:
            group, open_ = self._gather()
            if group and not self._ended.is_set():
                self._store(group)
        self._ended.set()

    def _gather(self) -> tuple[list[Take], bool]:
        """Wait for requests; return those that are decoded together, and whether there will be more."""
        first = self._queue.get()
        if first is None:
            return [], False
        if time.monotonic() - self._last_end_s < _BUSY_S:
            time.sleep(_WINDOW_S)
        group, size_bytes = [first], len(first.body)
        limit_bytes = max(_GROUP_BYTES_MIN, self._bytes_per_s * GROUP_S)
        while size_bytes < limit_bytes and not group[-1].alone:
            try:
                request = self._queue.get_nowait()
            except queue.Empty:
                break
            if request is None:
                return group, False
            if request.alone:
                self._store(group)
                group, size_bytes = [], 0
            group.append(request)
            size_bytes += len(request.body)
        return group, True

    def _store(self, requests: list[Take]) -> None:
        """Decode a group, make it durable and answer it."""
        self._connection.send(Begun(tuple(request.number for request in requests)))
        began_s = time.monotonic()
        group = decode_group(requests, self._redactor)
        self._count(group)
        answers, decoded_s, durable_s = group.answers, 0.0, 0.0
        if group.records:
            try:
                self._committer.wait_for_room()
                decoded_s = time.monotonic()
                begin = self._log.position
                end = self._log.append(group.records)
                self._committer.add(group, begin, end)
                durable_s = time.monotonic() - decoded_s
                self._faults.set(LOG_FAULT, None)
            except StoreError as error:
                if decoded_s:
                    self._faults.set(LOG_FAULT, str(error), stops_storing=True)
                group.as_received.clear()
                answers = [_failed(answer, str(error)) for answer in answers]
        self._last_end_s = time.monotonic()
        decode_s = self._last_end_s - began_s - durable_s
        size_bytes = sum(len(request.body) for request in requests)
        self._bytes_per_s = 0.8 * self._bytes_per_s + 0.2 * size_bytes / max(decode_s, 1e-4)
        self._connection.send(Answered(tuple(answers), decode_s, durable_s))
        self._forwarding.add(group.as_received)  # no sender waits for it
        group.as_received.clear()

    def _count(self, group: DecodedGroup) -> None:
        state = self._state
        with state.lock:
            state.requests += sum(answer.undecodable is None for answer in group.answers)
            state.received += group.received
            state.rejected += group.rejected
            state.changed += group.changed
            state.last_receive_unix_ns = time.time_ns()
            count_names(state.unmapped_spans, group.unmapped)
            count_names(state.unknown_turn_fields, group.unknown_turn_fields)

    def _write(self, groups: Sequence[DecodedGroup]) -> None:
        """Store groups for good, then count them. Raises StoreError."""
        if not any(group.tables for group in groups):
            return
        appended = self._writer.append_tables(*merged(groups))
        with self._state.lock:
            self._state.duplicates += appended.duplicates
        self._stored(appended)
        self._service_turns.take(appended.spans)

    def _stored(self, appended: AppendedTables) -> None:
        """Count what was stored for good."""
        state = self._state
        with state.lock:
            state.stored_turns += appended.turns.num_rows
            state.stored_spans += appended.spans.num_rows
            state.stored_points += appended.points.num_rows
        try:
            self._exposition.observe(appended.turns)
            self._service_exposition.observe(appended.turns)
        except Exception as error:  # noqa: BLE001 - the rows are stored, whatever the counts say
            _log.exception("turns could not be counted for /metrics")
            self._faults.set(_METRICS_FAULT, f"/metrics lacks turns that are stored ({type(error).__name__}: {error})")

    def _receive(self) -> None:
        for message in self._connection.received():
            if isinstance(message, Take):
                self._queue.put(message)
            elif isinstance(message, Ask):
                self._pages.put(message)
            else:
                assert isinstance(message, Stop)  # noqa: S101 - there is no other
                self.stop()
        # The front was killed: nobody waits for what was not answered.
        self._ended.set()
        self.stop()

    def _render(self) -> None:
        while True:
            ask = self._pages.get()
            try:
                self._connection.send(self._page(ask))
            except Exception:  # noqa: BLE001 - who asked is answered by the front, and the next page must be tried
                _log.exception("a page could not be rendered")

    def _page(self, ask: Ask) -> Page:
        state = self._state
        with state.lock:
            state.bad_requests = ask.counts.bad_requests
            state.refused_requests = ask.counts.refused_requests
            state.store_process_restarts = ask.counts.restarts
            state.waiting_rows = self._committer.waiting_rows
        if ask.page == "state":
            forwarding = shown_in_state(self._options.destinations, self._forwarding.reports())
            content = {**state.snapshot().as_dict(), "store": self._options.store, "forwarding": forwarding}
            return Page(ask.number, "application/json", orjson.dumps(content))
        body, content_type = self._exposition.render(ask.accept)
        body = with_forwarding(body, self._forwarding.reports())
        body = self._service_exposition.add_to(body, state.snapshot().unmapped_spans)
        return Page(ask.number, content_type, body)

    def _watch(self) -> None:
        while not self._ended.wait(_WATCH_S):
            for look in (self._watch_for.look, self._service_turns.look, self._forwarding.look, self._expiry.look):
                try:
                    look()
                except Exception:  # noqa: BLE001 - what fails once is looked at again
                    _log.exception("the state of the store could not be looked at")


def _failed(answer: Answer, sentence: str) -> Answer:
    return answer if answer.undecodable is not None else Answer(answer.number, failure=sentence)


def _wait_for_lock(directory: Path) -> None:
    """Wait a while for the previous store process to end; whoever owns the store then is found by the writer."""
    with contextlib.suppress(OSError), (directory / manifests.LOCK_NAME).open("rb") as lock:
        until_s = time.monotonic() + _LOCK_WITHIN_S
        while time.monotonic() < until_s:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(_LOCK_EVERY_S)
