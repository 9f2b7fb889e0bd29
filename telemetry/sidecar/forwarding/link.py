"""The store process's end of forwarding: starts the process that forwards, passes it what came, and hears how it fares.

Nothing here waits for that process or for a destination: what it is to hear is passed by a thread of its own.
"""

import contextlib
import logging
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from telemetry.sidecar import messages
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.link_messages import Add, Begin, DestinationReport, Drain, from_forwarder
from telemetry.sidecar.forwarding.spool_logs import ForwardingLogs
from telemetry.sidecar.forwarding.tally import DropReason, Tally, Waiting
from telemetry.sidecar.store_process.fault_board import FaultBoard
from telemetry.sidecar.store_process.record_kinds import signal_of
from telemetry.store.ingest_log import IngestLog
from telemetry.store.log_positions import START
from telemetry.store.log_records import Record

DRAIN_S: Final = 3.0
_ENDS_WITHIN_S: Final = 3.0
_CHUNK_BYTES: Final = 1 << 16
_BACKOFF_FIRST_S: Final = 0.2
_BACKOFF_MAX_S: Final = 30.0
# Who forwards and reports nothing for so long does not enforce the limits, either.
_SILENT_S: Final = 60.0
_PASS_EVERY_S: Final = 0.1
# What is on its way to the queues in memory; they have limits of their own.
_PASSED_BYTES_MAX: Final = 32 << 20

_log = logging.getLogger(__name__)


class Forwarding:
    """Forwards for one store from `start` to `stop`. Without destinations it does nothing.

    Raises StoreError for a queue that cannot be used.
    """

    def __init__(
        self,
        store: Path,
        destinations: Sequence[Destination],
        ingest: IngestLog,
        faults: FaultBoard,
        *,
        redact_names: str | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redact_names = redact_names
        self._clock_s = clock_s
        self._reported_s = clock_s()
        self._store = store
        self._destinations = tuple(destinations)
        self._in_memory = tuple(destination for destination in destinations if destination.in_memory)
        self._logs = ForwardingLogs(store, destinations, ingest) if destinations else None
        self._faults = faults
        self._changed = threading.Condition()
        self._to_pass: deque[Add] = deque()
        self._to_pass_bytes = 0
        self._has_grown = False
        self._stopping = threading.Event()
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: str | None = None
        self._reports: dict[str, DestinationReport] = {}
        # What processes before this one had counted, and what was passed to this one's memory.
        self._before: dict[str, Tally] = {destination.name: Tally() for destination in destinations}
        self._passed: dict[str, int] = dict.fromkeys(self._before, 0)
        self._threads = [
            threading.Thread(target=task, name=f"forwarding {task.__name__.strip('_')}", daemon=True)
            for task in (self._supervise, self._pass_on)
        ]

    def start(self) -> None:
        """Start the process that forwards."""
        if self._logs is not None:
            for thread in self._threads:
                thread.start()

    def add(self, as_received: Sequence[Record]) -> None:
        """Take requests that are durable in the ingest log and not yet acknowledged; encrypted queues are durable then.

        Never raises, and waits for a disk only.
        """
        if self._logs is None:
            return
        self._logs.add(as_received)
        with self._changed:
            self._has_grown = True
            if self._in_memory:
                self._to_pass.extend(
                    Add(signal, record.payload) for record in as_received if (signal := signal_of(record))
                )
                self._to_pass_bytes += sum(len(record.payload) for record in as_received)
                while self._to_pass_bytes > _PASSED_BYTES_MAX:
                    self._to_pass_bytes -= len(dropped := self._to_pass.popleft().body)
                    self._count_dropped("size", 1, len(dropped))
            self._changed.notify_all()

    def reports(self) -> tuple[DestinationReport, ...]:
        """How each destination fares, with everything that was counted since the store process began."""
        return tuple(self._report(destination) for destination in self._destinations)

    def look(self) -> None:
        """Set or take back the faults of the destinations; to be called about every second."""
        if self._logs is not None and self._clock_s() - self._reported_s > _SILENT_S:
            # Nobody enforces the limits.
            for destination in self._destinations:
                self._give_up(destination, self._logs)
        for report in self.reports():
            sentence = report.failure
            if sentence is not None:
                waiting = f"{report.backlog.size_bytes >> 20} MiB wait for {report.backlog.age_s:.0f} s"
                sentence = f"forwarding to {report.name} fails ({sentence}); {waiting}"
            self._faults.set(f"forward:{report.name}", sentence)

    def _give_up(self, destination: Destination, logs: ForwardingLogs) -> None:
        try:
            requests, size_bytes = logs.give_up(destination)
        except OSError as error:
            _log.warning("forwarding to %s: its queue cannot be read (%s)", destination.name, error)
            return
        if requests:
            _log.warning("forwarding to %s: %d requests are dropped, nobody forwards them", destination.name, requests)
            with self._changed:
                self._before[destination.name].drop("size", requests, size_bytes)

    def stop(self) -> None:
        """Forward what can be forwarded within seconds, then end; what is left is forwarded in the next life, unless it
        is in memory alone."""
        if self._logs is None:
            return
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(DRAIN_S + 2 * _ENDS_WITHIN_S)
        if (process := self._process) is not None and process.poll() is None:
            process.kill()
        self._logs.close()

    def _report(self, destination: Destination) -> DestinationReport:
        name = destination.name
        found = self._reports.get(name) or DestinationReport(name, START, Tally(), Waiting())
        tally = self._before[name] + found.tally
        if self._logs is not None and (lost := self._logs.lost_requests(name)):
            tally.drop("disk", lost, 0)
        return msgspec.structs.replace(found, tally=tally, failure=self._ended or found.failure)

    def _pass_on(self) -> None:
        """Tell the process what came, whenever there is one."""
        while True:
            with self._changed:
                while not self._stopping.is_set() and not (self._connection and (self._has_grown or self._to_pass)):
                    self._changed.wait()
                connection = self._connection
                adds = tuple(self._to_pass)
                self._to_pass.clear()
                self._to_pass_bytes = 0
                self._has_grown = False
                for destination in self._in_memory:
                    self._passed[destination.name] += sum(add.signal in destination.signals for add in adds)
            if connection is None or self._logs is None:
                return
            with contextlib.suppress(OSError):  # whoever receives notices that it is gone
                for add in adds:
                    connection.sendall(messages.frame(add))
                connection.sendall(messages.frame(self._logs.ends))
                if self._stopping.is_set():
                    connection.sendall(messages.frame(Drain(DRAIN_S)))
            if self._stopping.is_set():
                return
            # Under load, what came meanwhile is passed together.
            self._stopping.wait(_PASS_EVERY_S)

    def _supervise(self) -> None:
        """Keep a process running, and take its reports."""
        backoff_s = _BACKOFF_FIRST_S
        while not self._stopping.is_set():
            try:
                reported = self._follow()
            except Exception:  # noqa: BLE001 - forwarding must not end for good, whatever it is
                _log.exception("the process that forwards could not be started")
                reported = False
            self._account()
            if self._stopping.is_set():
                return
            backoff_s = _BACKOFF_FIRST_S if reported else min(2 * backoff_s, _BACKOFF_MAX_S)
            code = self._process.poll() if self._process is not None else None
            self._ended = f"the process that forwards has ended with {code} and starts again"
            _log.warning("%s in %.1f s", self._ended, backoff_s)
            self._stopping.wait(backoff_s)

    def _follow(self) -> bool:
        """Start a process and take its reports until it ends; return whether there was any."""
        logs = self._logs
        assert logs is not None  # noqa: S101 - there are destinations
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                command = [sys.executable, "-m", "telemetry.sidecar.forwarding", str(theirs.fileno())]
                self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
            ours.sendall(messages.frame(Begin(str(self._store), self._destinations, logs.ends, self._redact_names)))
            with self._changed:
                self._connection = ours
                self._has_grown = True
                self._changed.notify_all()
            try:
                return self._take_reports(ours, logs)
            finally:
                with self._changed:
                    self._connection = None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_ENDS_WITHIN_S)

    def _take_reports(self, connection: socket.socket, logs: ForwardingLogs) -> bool:
        frames = messages.Frames()
        reported = False
        with contextlib.suppress(OSError):
            while chunk := connection.recv(_CHUNK_BYTES):
                for content in frames.feed(chunk):
                    reported = True
                    self._ended = None
                    self._reported_s = self._clock_s()
                    for report in from_forwarder(content).destinations:
                        self._reports[report.name] = report
                        logs.passed(report.name, report.cursor)
        return reported

    def _account(self) -> None:
        """Keep what a process that has ended had counted; what was in its memory is lost."""
        with self._changed:
            for destination in self._destinations:
                name = destination.name
                report = self._reports.pop(name, None)
                tally = report.tally if report is not None else Tally()
                if destination.in_memory and (lost := self._passed[name] - tally.settled_requests) > 0:
                    tally.drop("restart", lost, report.backlog.size_bytes if report is not None else 0)
                    _log.warning("forwarding to %s: %d requests in memory are lost with their process", name, lost)
                self._passed[name] = 0
                self._before[name] += tally

    def _count_dropped(self, reason: DropReason, requests: int, size_bytes: int) -> None:
        for destination in self._in_memory:
            self._before[destination.name].drop(reason, requests, size_bytes)
