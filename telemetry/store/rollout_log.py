"""The log of a rollout's verdicts in a store: `rollouts/NAME/` with its plan, and a line for each verdict.

The log only grows, and a line counts once the disk has it and the head names it (`rollout_lines`). A process that is
killed leaves at most one line that is not whole, which the next one cuts off: nobody was answered from it. One process
writes a rollout at a time.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self, TypeVar

import msgspec

from telemetry.model.errors import StoreError
from telemetry.rollout.gate import GateVerdict, first_history
from telemetry.rollout.plan import RolloutHistory, RolloutPlan
from telemetry.rollout.verdict_document import as_object
from telemetry.store.private_files import fsync_directory, make_folder, open_private, write_durably
from telemetry.store.rollout_lines import (
    LINE_END,
    CheckedLines,
    LogHead,
    RolloutEntry,
    checked_lines,
    encoded_line,
    history_of,
    look_of,
    sha256_of,
    thinned,
)

FOLDER: Final = "rollouts"
PLAN_NAME: Final = "plan.toml"
LOG_NAME: Final = "verdicts.jsonl"
HEAD_NAME: Final = "head.json"
LOCK_NAME: Final = "writer.lock"
_Done = TypeVar("_Done")
_Stamp = tuple[int, int, int]
# A log may grow while it is read: what looks like a fault is looked at again.
_READ_AGAIN: Final = 2
# As many as a picture over time can show, and an answer over the network can carry.
MOST_ENTRIES: Final = 1000


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """A rollout as its log keeps it. `entries` are in their order, thinned where there are many: those at which a
    decision or a stage changed are all there. `faults` are sentences about what is not what was written."""

    name: str
    plan_text: str
    fingerprint: str
    entries: tuple[RolloutEntry, ...]
    faults: tuple[str, ...] = ()

    @property
    def verdicts(self) -> tuple[RolloutEntry, ...]:
        """The entries that hold a verdict."""
        return tuple(each for each in self.entries if each.verdict is not None)


def read_rollouts(store: Path, most_entries: int = MOST_ENTRIES) -> tuple[RolloutRecord, ...]:
    """Every rollout that the store keeps, by name; also while one is written. Raises StoreError when the folder cannot
    be read; what cannot be read of one rollout is a fault of its record."""
    folder = store / FOLDER
    try:
        names = sorted(each.name for each in os.scandir(folder) if each.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StoreError(f"{folder}: cannot be read ({error.strerror}); check the permissions of the store") from error
    found = (_record(folder / name, most_entries) for name in names)
    return tuple(each for each in found if each is not None)


def rollouts_stamp(store: Path) -> tuple[tuple[str, int, int, int], ...]:
    """What changes with every verdict, and with whatever else happens to the logs: of every file its name, its inode,
    when it was changed, its size."""
    found: list[tuple[str, int, int, int]] = []
    try:
        names = sorted(each.name for each in os.scandir(store / FOLDER) if each.is_dir(follow_symlinks=False))
    except OSError:
        return ()
    for name in names:
        for file in (PLAN_NAME, LOG_NAME, HEAD_NAME):
            try:
                stat = (store / FOLDER / name / file).stat()
            except OSError:
                continue
            found.append((f"{name}/{file}", stat.st_ino, stat.st_ctime_ns, stat.st_size))
    return tuple(found)


def _record(folder: Path, most_entries: int) -> RolloutRecord | None:
    try:
        content, plan, head = _read(folder)
        checked = checked_lines(content, plan, head)
        for _ in range(_READ_AGAIN if checked.faults else 0):
            content, plan, head = _read(folder)
            checked = checked_lines(content, plan, head)
    except OSError as error:
        why = f"{error.filename or folder}: cannot be read ({error.strerror}); check the permissions of the store"
        return RolloutRecord(folder.name, "", "", (), (why,))
    if not content and head is None:
        return None  # its writer was ended before the first line
    entries = checked.entries
    return RolloutRecord(
        name=folder.name,
        plan_text=plan.decode(errors="replace"),
        fingerprint=entries[0].fingerprint if entries else "",
        entries=thinned(entries, most_entries),
        faults=tuple(f"{folder / LOG_NAME}: {fault}" for fault in checked.faults),
    )


def _read(folder: Path) -> tuple[bytes, bytes, LogHead | None]:
    """The lines, the plan and the head; the head is not newer than the lines. Raises OSError."""
    head = _read_head(folder)
    content = _content(folder / LOG_NAME)
    return content, _content(folder / PLAN_NAME), head


def _read_head(folder: Path) -> LogHead | None:
    content = _content(folder / HEAD_NAME)
    if not content:
        return None
    try:
        return msgspec.json.decode(content, type=LogHead)
    except msgspec.DecodeError:
        return LogHead(-1, "")  # no line has this digest, and every line is behind it


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def append_verdict(store: Path, plan: RolloutPlan, plan_text: str, verdict: GateVerdict) -> RolloutEntry:
    """Keep one verdict, and let others write again. Raises StoreError as `RolloutLog` does."""
    with RolloutLog(store, plan, plan_text, verdict.history.looks[-1].at_unix_ns) as log:
        return log.append(plan, verdict)


class RolloutLog:
    """The log of one rollout, for one writer; for one thread.

    Raises StoreError when another process writes it, when it was changed by others, and when the disk refuses: then
    nothing was kept. The first one that opens it lays down the plan.
    """

    def __init__(self, store: Path, plan: RolloutPlan, plan_text: str, now_unix_ns: int) -> None:
        self.folder = store / FOLDER / plan.name
        self._path = self.folder / LOG_NAME
        self._name = plan.name
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as opening:
            opening.callback(self._stack.close)
            self._on_disk(self._lock)
            self._stamp: _Stamp | None = None
            checked = self._on_disk(self._mended)
            self._refuse(checked.faults)
            self._size = checked.whole_bytes
            self._head = checked.head
            self._newest = checked.entries[-1] if checked.entries else None
            history = history_of(plan.name, checked.entries)
            if history is None:
                history = first_history(plan, now_unix_ns)
                self._begin(plan, plan_text.encode(), history, now_unix_ns)
            self._history = history
            moves = [each.stage for each in checked.entries[1:] if each.verdict is None]
            self._moves, self._begins_here = len(moves), moves.count(history.stage)
            opening.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another process write."""
        self._stack.close()

    @property
    def history(self) -> RolloutHistory:
        """What the gate takes from earlier looks."""
        return self._history

    @property
    def newest(self) -> RolloutEntry:
        """The last line."""
        assert self._newest is not None  # noqa: S101 - a log that is open has its first line
        return self._newest

    @property
    def moves(self) -> int:
        """How many times somebody said that a stage has begun."""
        return self._moves

    @property
    def begins_here(self) -> int:
        """How many times somebody said so of the stage at which the rollout is."""
        return self._begins_here

    def append(self, plan: RolloutPlan, verdict: GateVerdict) -> RolloutEntry:
        """Keep a verdict; it counts once this returns. Of slices that are not worse, the log keeps those of the looks
        at which the decision changed. Raises StoreError."""
        content = as_object(plan, verdict)
        if self.newest.decision == verdict.verdict:
            content["slices"] = [each for each in content["slices"] if each["is_worse"]]
        entry = RolloutEntry(
            sequence=self.newest.sequence + 1,
            at_unix_ns=verdict.history.looks[-1].at_unix_ns,
            fingerprint=plan.fingerprint,
            stage=self._history.stage,
            since_unix_ns=self._history.stage_since_unix_ns,
            verdict=content,
        )
        self._append(entry)
        if entry.fingerprint == self._history.fingerprint:
            self._history = self._history.with_look(look_of(entry))
        return entry

    def move(self, stage: str, at_unix_ns: int) -> RolloutEntry:
        """Keep that a stage begins, of which the turns from now on are judged. Raises StoreError."""
        entry = RolloutEntry(
            sequence=self.newest.sequence + 1,
            at_unix_ns=at_unix_ns,
            fingerprint=self._history.fingerprint,
            stage=stage,
            since_unix_ns=at_unix_ns,
        )
        self._append(entry)
        self._begins_here = self._begins_here + 1 if stage == self._history.stage else 1
        self._history = self._history.at_stage(stage, at_unix_ns)
        self._moves += 1
        return entry

    def _lock(self) -> None:
        make_folder(self.folder)
        lock = self._stack.enter_context(open_private(self.folder / LOCK_NAME, 0))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{self.folder}: another process evaluates the rollout {self._name}; ask that one, or end it"
            ) from None

    def _mended(self) -> CheckedLines:
        """What the log holds, after a line that was not written to its end is cut off."""
        content, plan, head = _read(self.folder)
        checked = checked_lines(content, plan, head)
        if checked.whole_bytes < len(content) and not checked.faults:
            with self._opened() as file:
                _cut(file, checked.whole_bytes)
        if checked.head is not None and checked.head != head and not checked.faults:
            self._write_head(checked.head)
        return checked

    def _recheck(self) -> None:
        """Look whether somebody else wrote into the log since the last line."""
        if self._stamp is None:
            return
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            if _stamp_of(file) == self._stamp:
                return
        checked = checked_lines(*_read(self.folder))
        changed = () if checked.head == self._head else ("it does not end as it was written",)
        self._refuse(checked.faults or changed)

    def _refuse(self, faults: tuple[str, ...]) -> None:
        if faults:
            raise StoreError(
                f"{self._path}: {'; '.join(faults)}. What it says cannot be trusted: restore the folder from a copy, "
                "or begin a rollout of another name"
            )

    def _begin(self, plan: RolloutPlan, plan_text: bytes, history: RolloutHistory, now_unix_ns: int) -> None:
        def lay_down() -> None:
            write_durably(self.folder / PLAN_NAME, plan_text)
            with self._opened() as file:
                _cut(file, 0)
            fsync_directory(self.folder)
            fsync_directory(self.folder.parent)

        self._on_disk(lay_down)
        first = RolloutEntry(0, now_unix_ns, plan.fingerprint, history.stage, history.stage_since_unix_ns)
        self._head = LogHead(-1, sha256_of(plan_text))
        self._size = 0
        self._append(first)

    def _append(self, entry: RolloutEntry) -> None:
        assert self._head is not None  # noqa: S101 - there is one from the first line on
        self._on_disk(self._recheck)
        line = encoded_line(entry, self._head.sha256)
        head = LogHead(entry.sequence, sha256_of(line))

        def write() -> None:
            with self._opened() as file:
                os.ftruncate(file.fileno(), self._size)
                file.seek(self._size)
                try:
                    file.write(line + LINE_END)
                    file.flush()
                    os.fsync(file.fileno())
                    self._write_head(head)
                except OSError:
                    with contextlib.suppress(OSError):
                        _cut(file, self._size)
                    raise
                finally:
                    self._stamp = _stamp_of(file)

        self._on_disk(write)
        self._size += len(line) + 1
        self._head, self._newest = head, entry

    def _write_head(self, head: LogHead) -> None:
        temporary = self.folder / f"{HEAD_NAME}.tmp"
        write_durably(temporary, msgspec.json.encode(head))
        temporary.replace(self.folder / HEAD_NAME)

    def _opened(self) -> BinaryIO:
        return open_private(self._path, 0)

    def _on_disk(self, step: Callable[[], _Done]) -> _Done:
        try:
            return step()
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreError(
                f"{self.folder}: verdicts cannot be kept there ({why}); none counts until the disk takes them"
            ) from error


def _stamp_of(file: BinaryIO) -> _Stamp:
    """What changes with every write, and with every other file of that name."""
    stat = os.fstat(file.fileno())
    return stat.st_ctime_ns, stat.st_ino, stat.st_size


def _cut(file: BinaryIO, size: int) -> None:
    os.ftruncate(file.fileno(), size)
    os.fsync(file.fileno())
