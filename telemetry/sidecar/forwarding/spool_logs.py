"""The store process's part of the queues: what is held of the ingest log, and the encrypted queues that it writes."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from telemetry.model.errors import StoreError
from telemetry.sidecar.forwarding import folders
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.disk_queue import missing_room_bytes
from telemetry.sidecar.forwarding.encryption import RecordCipher
from telemetry.sidecar.forwarding.link_messages import LogEnds
from telemetry.sidecar.forwarding.secret_values import SecretError
from telemetry.sidecar.store_process.record_kinds import signal_of
from telemetry.store.ingest_log import IngestLog
from telemetry.store.log_positions import START, Position, read_position, write_position
from telemetry.store.log_reader import LogReader
from telemetry.store.log_records import Record
from telemetry.store.manifest import QUARANTINE_FOLDER
from telemetry.store.private_files import make_folder

# What is held is removed file by file, so files are small.
FILE_BYTES_MAX: Final = 16 << 20

_log = logging.getLogger(__name__)


class ForwardingLogs:
    """The logs that are forwarded from; each is held from its slowest destination's cursor on.

    Raises StoreError if a queue cannot be used, or was encrypted with another key.
    """

    def __init__(self, store: Path, destinations: Sequence[Destination], ingest: IngestLog) -> None:
        self._store = store
        self._ingest = ingest
        self._queues: dict[str, _EncryptedQueue] = {}
        self._cursors: dict[str, Position] = {}
        try:
            for destination in destinations:
                make_folder(folders.cursor(store, destination.name).parent)
                if destination.in_memory:
                    continue
                log = ingest
                if destination.text == "keep":
                    self._queues[destination.name] = _EncryptedQueue(store, destination)
                    log = self._queues[destination.name].log
                self._cursors[destination.name] = _cursor(store, destination.name, log)
            _name_left_overs(store, {destination.name for destination in destinations})
        except OSError as error:
            where = folders.of_all(store)
            raise StoreError(f"{where}: cannot be used for forwarding ({error.strerror})") from error
        self._hold()

    @property
    def ends(self) -> LogEnds:
        """Up to where the logs are durable."""
        return LogEnds(self._ingest.end, {name: queue.log.end for name, queue in self._queues.items()})

    def add(self, records: Sequence[Record]) -> None:
        """Make requests durable in the encrypted queues. What a disk does not take is lost for them, and counted."""
        for queue in self._queues.values():
            queue.add(records)

    def passed(self, name: str, cursor: Position) -> None:
        """Note that a destination needs nothing before `cursor` any more."""
        if name not in self._cursors:
            return
        self._cursors[name] = max(cursor, self._cursors[name])
        if name in self._queues:
            self._queues[name].log.committed(cursor)
        else:
            self._hold()

    def give_up(self, destination: Destination) -> tuple[int, int]:
        """Remove the oldest files that are beyond a destination's limits while nobody reads them.

        Returns the requests and bytes that are lost for it. Raises OSError.
        """
        name = destination.name
        if name not in self._cursors:
            return 0, 0
        is_queue = name in self._queues
        end = self._queues[name].log.end if is_queue else self._ingest.end
        folder = folders.queue(self._store, name) if is_queue else folders.ingest(self._store)
        reader = LogReader(folder)
        at = self._cursors[name]
        excess_bytes = max(reader.waiting_bytes(at, end) - destination.max_bytes, missing_room_bytes(folder))
        requests = size_bytes = 0
        for number in reader.numbers():
            if excess_bytes <= 0 or number >= end.file:
                break
            if number >= at.file:
                behind = Position(number + 1, 0)
                excess_bytes -= reader.waiting_bytes(at, behind)
                lost = reader.window(at, behind, FILE_BYTES_MAX << 2).records
                requests += len(lost)
                size_bytes += sum(len(record.payload) for record, _ in lost)
                at = behind
        self.passed(name, at)
        return requests, size_bytes

    def lost_requests(self, name: str) -> int:
        """How many requests the disk did not take for a destination."""
        return self._queues[name].lost_requests if name in self._queues else 0

    def close(self) -> None:
        """Release the encrypted queues' files."""
        for queue in self._queues.values():
            queue.log.close()

    def _hold(self) -> None:
        held = [cursor for name, cursor in self._cursors.items() if name not in self._queues]
        if held:
            self._ingest.hold(min(held))


class _EncryptedQueue:
    """The log of one destination that texts are kept for."""

    def __init__(self, store: Path, destination: Destination) -> None:
        self._destination = destination
        try:
            self._cipher = RecordCipher(destination.read_key())
        except SecretError as error:
            raise StoreError(f"forward destination {destination.name}: {error}") from error
        folder = folders.queue(store, destination.name)
        self.log = IngestLog(folder, store / QUARANTINE_FOLDER, file_bytes_max=FILE_BYTES_MAX)
        self.lost_requests = 0
        first = next(self.log.replay(), None)
        if first is not None and not self._cipher.is_ours(first[0]):
            raise StoreError(
                f"{folder}: what waits there was encrypted with another key; give that key to the destination "
                f"{destination.name} until it is forwarded, or remove the folder"
            )

    def add(self, records: Sequence[Record]) -> None:
        wanted = [record for record in records if signal_of(record) in self._destination.signals]
        if not wanted:
            return
        try:
            self.log.append([self._cipher.encrypt(record) for record in wanted])
        except StoreError as error:
            if not self.lost_requests:
                _log.warning("forwarding to %s: requests are lost for it (%s)", self._destination.name, error)
            self.lost_requests += len(wanted)


def _cursor(store: Path, name: str, ingest: IngestLog) -> Position:
    """Where a destination goes on; a new one begins with what is received from now on."""
    path = folders.cursor(store, name)
    if not path.exists():
        write_position(path, ingest.end, durable=True)
    cursor = read_position(path)
    if cursor is None:
        _log.warning("%s: is damaged; what the ingest log holds is forwarded again", path)
        return START
    return cursor


def _name_left_overs(store: Path, names: set[str]) -> None:
    for folder in folders.of_all(store).iterdir():
        if folder.is_dir() and folder.name not in names and any((folder / folders.QUEUE_FOLDER).glob("*.log")):
            _log.warning("%s: holds a queue of a destination that is not configured; remove it if it is to go", folder)
