"""The log of a rollout's verdicts in a store: `rollouts/NAME/` with its plan, and a line for each verdict.

The log only grows, and a line counts once the disk has it and the head names it. A process that is killed leaves at
most one line that is not whole, which the next one cuts off: nobody was answered from it. One process writes a rollout
at a time.

A line holds the SHA-256 of the one before it; the first holds that of the plan. The head holds the number and the
SHA-256 of the last line. So a line that was edited, removed or moved is found, and so is another plan. Whoever writes
every line and the head anew is not found: a copy on another machine is what shows that.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self, TypeVar

import msgspec

from telemetry.model.errors import StoreError
from telemetry.rollout.gate import GateVerdict, first_history
from telemetry.rollout.plan import Decision, Look, RolloutHistory, RolloutPlan
from telemetry.rollout.progress import LoggedVerdict
from telemetry.rollout.verdict_document import as_object
from telemetry.store.private_files import fsync_directory, make_folder, open_private, write_durably

# A log that is not of ours has a fault in every line.
_NAMED_MAX: Final = 10
LINE_END: Final = b"\n"


@dataclass(frozen=True, slots=True)
class RolloutEntry:
    """One line: a verdict, or where `verdict` is None, a stage that began. `verdict` is the object of
    `verdict_document`. `stage` and `since_unix_ns` are where the rollout is after it, `fingerprint` is the plan's."""

    sequence: int
    at_unix_ns: int
    fingerprint: str
    stage: str
    since_unix_ns: int | None
    verdict: Mapping[str, Any] | None = None

    @property
    def decision(self) -> Decision | None:
        """What the verdict says; None for a stage that began."""
        return None if self.verdict is None else self.verdict["verdict"]


class LogHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last line that counts."""

    sequence: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckedLines:
    """What a log holds. `whole_bytes` end with its last line; what is behind them was not written to its end.
    `head` is of the last line, None where there is none."""

    entries: tuple[RolloutEntry, ...]
    faults: tuple[str, ...]
    whole_bytes: int
    head: LogHead | None


class _Cohort(msgspec.Struct):
    name: str
    turns: int


class _Cohorts(msgspec.Struct):
    candidate: _Cohort
    control: _Cohort


class _Verdict(msgspec.Struct):
    """What the history is made of; the rest of a verdict is for readers."""

    verdict: Decision
    stage: str
    cohorts: _Cohorts


class _WrittenLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    sequence: int
    at_unix_ns: int
    previous_sha256: str
    fingerprint: str
    stage: str
    since_unix_ns: int | None
    verdict: dict[str, Any] | None


def logged_verdicts(entries: Iterable[RolloutEntry]) -> list[LoggedVerdict]:
    """The verdicts among the entries of a log."""
    return [
        LoggedVerdict(each.at_unix_ns, each.verdict["stage"], each.since_unix_ns, each.verdict)
        for each in entries
        if each.verdict is not None
    ]


def sha256_of(content: bytes) -> str:
    """The digest that links the lines."""
    return hashlib.sha256(content).hexdigest()


def encoded_line(entry: RolloutEntry, previous_sha256: str) -> bytes:
    """An entry as a line, without the line's end."""
    verdict = None if entry.verdict is None else dict(entry.verdict)
    return msgspec.json.encode(
        _WrittenLine(
            sequence=entry.sequence,
            at_unix_ns=entry.at_unix_ns,
            previous_sha256=previous_sha256,
            fingerprint=entry.fingerprint,
            stage=entry.stage,
            since_unix_ns=entry.since_unix_ns,
            verdict=verdict,
        )
    )


def checked_lines(content: bytes, plan: bytes, head: LogHead | None) -> CheckedLines:
    """The entries of a log, with a sentence for each line that is not what was written."""
    entries: list[RolloutEntry] = []
    faults: list[str] = []
    whole, last = 0, None
    previous: str | None = sha256_of(plan)
    for number, text in enumerate(_lines(content), 1):
        try:
            line = msgspec.json.decode(text, type=_WrittenLine)
            if line.verdict is not None:
                msgspec.convert(line.verdict, type=_Verdict)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            faults.append(f"line {number} is not one of this log ({error})")
            previous, last = None, None
        else:
            faults += _misplaced(line, number, entries, previous)
            entries.append(
                RolloutEntry(
                    line.sequence, line.at_unix_ns, line.fingerprint, line.stage, line.since_unix_ns, line.verdict
                )
            )
            last = LogHead(line.sequence, sha256_of(text))
            previous = last.sha256
        whole += len(text) + 1
    faults += _beyond(head, entries, last, content)
    return CheckedLines(tuple(entries), tuple(faults[:_NAMED_MAX]), whole, last)


def history_of(plan: str, entries: Sequence[RolloutEntry]) -> RolloutHistory | None:
    """What the gate takes from earlier looks; None before the first line. Looks at an edited plan, which can only have
    held, are not part of it."""
    if not entries:
        return None
    fingerprint, newest = entries[0].fingerprint, entries[-1]
    looks = tuple(look_of(each) for each in entries if each.verdict is not None and each.fingerprint == fingerprint)
    return RolloutHistory(
        plan=plan,
        fingerprint=fingerprint,
        stage=newest.stage,
        stage_since_unix_ns=newest.since_unix_ns,
        looks=looks,
    )


def look_of(entry: RolloutEntry) -> Look:
    """The look that an entry with a verdict keeps."""
    verdict = msgspec.convert(entry.verdict, type=_Verdict)
    return Look(
        at_unix_ns=entry.at_unix_ns,
        stage=verdict.stage,
        candidate_turns=verdict.cohorts.candidate.turns,
        control_turns=verdict.cohorts.control.turns,
        verdict=verdict.verdict,
    )


def thinned(entries: Sequence[RolloutEntry], most: int) -> tuple[RolloutEntry, ...]:
    """At most about `most` entries: the newest, every one at which the decision or the stage changed, and of the others
    evenly many."""
    if len(entries) <= most:
        return tuple(entries)
    step = -(-len(entries) // max(1, most))
    last = len(entries) - 1
    return tuple(
        entry
        for place, entry in enumerate(entries)
        if place in (0, last) or place % step == 0 or _changed(entries[place - 1], entry)
    )


def _changed(before: RolloutEntry, entry: RolloutEntry) -> bool:
    return (before.decision, before.stage) != (entry.decision, entry.stage)


def _lines(content: bytes) -> Iterator[bytes]:
    """The lines that end; what is behind the last end was not written to its own."""
    start = 0
    while (end := content.find(LINE_END, start)) >= 0:
        yield content[start:end]
        start = end + 1


def _misplaced(line: _WrittenLine, number: int, before: Sequence[RolloutEntry], previous: str | None) -> Iterator[str]:
    if previous is None:
        return  # behind a line that cannot be read, nothing is known of the order
    expected = before[-1].sequence + 1 if before else 0
    if line.sequence > expected:
        is_one = line.sequence == expected + 1
        missing = f"entry {expected} was" if is_one else f"entries {expected} to {line.sequence - 1} were"
        yield f"before line {number} the {missing} removed"
    elif line.sequence < expected:
        yield f"line {number} with entry {line.sequence} stands behind entry {expected - 1}"
    elif line.previous_sha256 != previous:
        yield "the plan beside the log was edited" if number == 1 else f"line {number - 1} was edited"


def _beyond(
    head: LogHead | None, entries: Sequence[RolloutEntry], last: LogHead | None, content: bytes
) -> Iterator[str]:
    """What the head says of the end. The log may be one line ahead: its writer ended between the two."""
    ends = entries[-1].sequence if entries else -1
    if head is None:
        if ends > 0:
            yield "the file that names its last line was removed"
    elif head.sequence > ends:
        yield f"its end is missing: the last entry is {ends if entries else 'gone'}, and {head.sequence} was written"
    elif ends > head.sequence + 1:
        yield f"{ends - head.sequence} entries were added behind the last one that was written, {head.sequence}"
    elif last is not None and head.sequence == last.sequence and head.sha256 != last.sha256:
        yield f"line {content.count(LINE_END)} was edited"


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
