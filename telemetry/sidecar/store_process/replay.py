"""Commits what the ingest log holds from earlier lives, before anything new is taken.

Only requests that were decoded are in the log. Should one end the process all the same, it is found: after
`TOGETHER_ATTEMPTS` attempts that came no further, records are committed one by one, and the record at which
`SINGLE_ATTEMPTS` more end is kept in the quarantine.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from telemetry.model.errors import StoreError
from telemetry.sidecar.privacy.requests import Redactor
from telemetry.sidecar.store_process.groups import DecodedGroup, decode_group, take_again
from telemetry.store.ingest_log import IngestLog, Position, Record

TOGETHER_ATTEMPTS: Final = 3
SINGLE_ATTEMPTS: Final = 2
ATTEMPTS_NAME: Final = "attempts"
_GROUP_BYTES: Final = 4 << 20

_Logged = tuple[Record, Position]


def replay(
    log: IngestLog,
    folder: Path,
    write: Callable[[Sequence[DecodedGroup]], None],
    redactor: Redactor | None = None,
) -> int:
    """Commit what the log holds; return how many requests that were. Raises StoreError if it cannot be written.

    The attempts are counted in a file in `folder`. The redactor is for what versions have logged that had none.
    """
    pending = log.replay()
    first = next(pending, None)
    if first is None:
        return 0
    attempts = _Attempts(folder / ATTEMPTS_NAME)
    tries = attempts.begin(first[1])
    done = 0
    if tries > TOGETHER_ATTEMPTS + SINGLE_ATTEMPTS:
        log.to_quarantine(*first)
        log.committed(first[1])
        first = next(pending, None)
    single = tries > TOGETHER_ATTEMPTS
    try:
        for group in _groups(first, pending, 0 if single else _GROUP_BYTES):
            done += _commit(log, group, write, redactor)
            log.committed(group[-1][1])
    except StoreError:
        attempts.end()  # it is the disk that refuses, no record
        raise
    attempts.end()
    return done


def _commit(
    log: IngestLog,
    group: list[_Logged],
    write: Callable[[Sequence[DecodedGroup]], None],
    redactor: Redactor | None,
) -> int:
    requests = [take_again(number, record) for number, (record, _) in enumerate(group)]
    decoded = decode_group([request for request in requests if request is not None], redactor)
    try:
        write([decoded])
    except StoreError:
        raise
    except Exception:  # noqa: BLE001 - one request must not keep the others from being committed
        if len(group) > 1:
            return sum(_commit(log, [each], write, redactor) for each in group)
        log.to_quarantine(*group[0])
        return 0
    # What an older version took and this one cannot read is kept.
    taken = {answer.number for answer in decoded.answers if answer.undecodable is None}
    for number, logged in enumerate(group):
        if number not in taken:
            log.to_quarantine(*logged)
    return len(taken)


def _groups(first: _Logged | None, rest: Iterator[_Logged], group_bytes: int) -> Iterator[list[_Logged]]:
    group = [first] if first is not None else []
    for logged in rest:
        if group and sum(len(record.payload) for record, _ in group) >= group_bytes:
            yield group
            group = []
        group.append(logged)
    if group:
        yield group


class _Attempts:
    """How many replays in a row began at the same record."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, position: Position) -> int:
        """Count an attempt; return how many there were with it."""
        where, before = f"{position.file} {position.offset}", 0
        with contextlib.suppress(OSError, ValueError):
            found, _, count = self._path.read_text(encoding="ascii").rpartition(" ")
            before = int(count) if found == where else 0
        with contextlib.suppress(OSError):
            self._path.touch(0o600)
            self._path.write_text(f"{where} {before + 1}", encoding="ascii")
        return before + 1

    def end(self) -> None:
        """Forget the attempts."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
