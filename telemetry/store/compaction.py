"""Merging small segments in the background, so that a store of many appends stays quick to read, and removing old ones.

The merged file takes the place of those it was made of in the manifest in one step. Readers that still hold the old
manifest keep the old files for a while, and a reader that comes even later asks again.
"""

import contextlib
import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.compaction_plan import MergeLimits, backlog, plan
from telemetry.store.manifest import Segment, files_of
from telemetry.store.merging import UnreadableError, merged
from telemetry.store.missing_rollups import MissingRollUps, RollUp
from telemetry.store.retention import KEEP_ALL, Keep, to_remove
from telemetry.store.retired import GRACE_S, RetiredFiles
from telemetry.store.schema import ArrowTable
from telemetry.store.writer import StoreWriter

_log = logging.getLogger(__name__)

_EVERY_S: Final = 2.0
# Segments whose merge failed are left out for so long, so that others are merged meanwhile.
RETRY_S: Final = 30.0
_NICE: Final = 10
_MERGE: Final = "merge"
_REMOVE: Final = "remove"
_ROLL_UP: Final = "roll up"


@dataclass(frozen=True, slots=True)
class CompactionHealth:
    """`backlog` segments wait to be merged; `last_failure` is None as soon as the same succeeds later."""

    running: bool
    merges: int
    last_merge_unix_ns: int | None
    last_failure: str | None
    backlog: int
    damaged: tuple[str, ...]


class _MergeStoppedError(Exception):
    """A merge was given up, as its process ends; what it was to replace is still there."""


class Compactor:
    """Merges a writer's segments, by `run_once` or in a thread of its own between `start` and `stop`.

    The thread goes on whatever fails: `health` says what did. `stopping` is set by `stop`; what is given as `roll_up`
    may look at it, as a large merge takes longer than a process is given to end.
    """

    def __init__(
        self,
        writer: StoreWriter,
        *,
        limits: MergeLimits = MergeLimits(),  # noqa: B008 - frozen
        keep: Keep = KEEP_ALL,
        roll_up: RollUp = lambda _path, _segment: None,
        grace_s: float = GRACE_S,
        clock_s: Callable[[], float] = time.monotonic,
        unix_ns: Callable[[], int] = time.time_ns,
        stopping: threading.Event | None = None,
    ) -> None:
        self._writer = writer
        self._limits = limits.for_keeping(keep)
        self._keep = keep
        self._roll_up = roll_up
        self._clock_s = clock_s
        self._unix_ns = unix_ns
        self._retired = RetiredFiles(writer, grace_s=grace_s, clock_s=clock_s)
        self._missing = MissingRollUps(
            writer,
            roll_up,
            clock_s=clock_s,
            on_damage=self._note_damage,
            on_retired=self._retired.add_rollup,
        )
        self._damaged: frozenset[Segment] = frozenset()
        self._resting: dict[Segment, float] = {}
        self._merges = 0
        self._last_merge_unix_ns: int | None = None
        self._failures: dict[str, str] = {}
        self._stopping = threading.Event() if stopping is None else stopping
        self._thread: threading.Thread | None = None

    @property
    def health(self) -> CompactionHealth:
        """How it goes at this moment, from any thread."""
        return CompactionHealth(
            running=self._thread is not None and self._thread.is_alive(),
            merges=self._merges,
            last_merge_unix_ns=self._last_merge_unix_ns,
            last_failure=next(iter(self._failures.values()), None),
            backlog=backlog(self._writer.manifest, self._limits, self._damaged),
            damaged=tuple(sorted(segment.file for segment in self._damaged)),
        )

    def start(self) -> None:
        """Begin compacting in the background."""
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give up the merge under way, end the thread, and remove what no reader of a current manifest needs."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._retired.remove_due(everything=True)

    def run_once(self) -> bool:
        """Do one merge; False when there was none to do. A damaged segment is left where it is for good.

        Raises StoreError when the merge failed: then nothing has changed, no file is left, and these segments rest.
        """
        self._retired.remove_due()
        now = self._clock_s()
        self._resting = {segment: until for segment, until in self._resting.items() if until > now}
        chosen = plan(self._writer.manifest, self._limits, self._damaged | self._resting.keys())
        if not chosen:
            if not self._resting:
                self._failures.pop(_MERGE, None)
            return False
        try:
            self._merge(chosen)
        except UnreadableError as error:
            self._note_damage(error.segment)
        except _MergeStoppedError:
            return False
        except Exception as error:
            self._resting |= dict.fromkeys(chosen, now + RETRY_S)
            self._failures[_MERGE] = self._sentence(chosen, error)
            raise StoreError(self._failures[_MERGE]) from error
        else:
            self._merges += 1
            self._last_merge_unix_ns = self._unix_ns()
            self._failures.pop(_MERGE, None)
        finally:
            # Arrow keeps what it freed for its next use; here that is minutes away.
            pa.default_memory_pool().release_unused()
        return True

    def roll_up_once(self) -> bool:
        """Give one large segment that was not merged its roll-up; False when none waits for one.

        Raises StoreError when that failed: then it has none yet, and rests.
        """
        try:
            done = self._missing.make_one()
        except OSError as error:
            self._failures[_ROLL_UP] = (
                f"{self._writer.directory}: a segment could not be rolled up ({error.strerror}); it is tried again"
            )
            raise StoreError(self._failures[_ROLL_UP]) from error
        finally:
            pa.default_memory_pool().release_unused()
        if done:
            self._failures.pop(_ROLL_UP, None)
        return done

    def remove_old(self) -> int:
        """Take what is not to be kept out of the store; how many segments it was. Readers keep their files for a while.

        Raises StoreError when the manifest cannot be written: then nothing has changed.
        """
        self._retired.add(self._writer.take_replaced())
        self._retired.remove_due()
        chosen = to_remove(self._writer.manifest, self._keep, self._unix_ns())
        if chosen:
            try:
                self._writer.remove(chosen)
            except OSError as error:
                self._failures[_REMOVE] = (
                    f"{self._writer.directory}: old rows could not be removed ({error.strerror}); it is tried again"
                )
                raise StoreError(self._failures[_REMOVE]) from error
            finally:
                if chosen[0] not in self._writer.manifest.segments:
                    self._retired.add(chosen)
        self._failures.pop(_REMOVE, None)
        return len(chosen)

    def _merge(self, chosen: tuple[Segment, ...]) -> None:
        directory = self._writer.directory
        needed = sum(segment.size_bytes for segment in chosen)
        if shutil.disk_usage(directory).free < 2 * needed:
            raise OSError(errno.ENOSPC, f"the disk has no room for {2 * needed} bytes beside what is received")
        table, level = chosen[0].table, max(map(self._limits.tier, chosen)) + 1
        rows = self._until_stopped(merged(directory, chosen))
        segment = self._writer.write_segment(table, rows, level, replaces=chosen)
        try:
            rollup = self._roll_up(manifests.segment_path(directory, segment), segment)
            if rollup is None and self._stopping.is_set():
                raise _MergeStoppedError  # what it would replace has roll-ups
            segment = manifests.with_rollup(directory, segment, rollup)
            self._writer.swap(chosen, segment)
        finally:
            if segment in self._writer.manifest.segments:
                self._retired.add(chosen)
            self._writer.discard_unpublished(files_of([segment]))

    def _until_stopped(self, groups: Iterator[ArrowTable]) -> Iterator[ArrowTable]:
        for group in groups:
            if self._stopping.is_set():
                raise _MergeStoppedError
            yield group

    def _note_damage(self, segment: Segment) -> None:
        self._damaged |= {segment}
        self._writer.note_damage(segment, "its content is not what was written")

    def _sentence(self, chosen: tuple[Segment, ...], error: Exception) -> str:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        return (
            f"{self._writer.directory}: {len(chosen)} segments of {chosen[0].table} could not be merged ({why}); "
            "nothing is lost, it is tried again"
        )

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while not self._stopping.wait(_EVERY_S):
            self._tried(_REMOVE, self.remove_old)
            while not self._stopping.is_set() and self._rolled_up_or_merged():
                pass

    def _rolled_up_or_merged(self) -> bool:
        # A reader waits longer for turns without roll-ups than for turns in many files.
        return bool(self._tried(_ROLL_UP, self.roll_up_once) or self._tried(_MERGE, self.run_once))

    def _tried(self, what: str, step: Callable[[], int]) -> int:
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - whatever it was, the next step must be tried
            self._failures[what] = str(error) or type(error).__name__
            _log.warning("%s", self._failures[what])
            return 0
