"""The log of one rollout: a decision is a row of the store before anything acts on it.

Rows go into the store if this process owns it, or to the sidecar that owns it; if no process does, the store is opened
for each row.
"""

import fcntl
import time
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, Self

import msgspec

from telemetry.model.errors import StoreError
from telemetry.rollout.gate import GateVerdict, first_history
from telemetry.rollout.plan import RolloutHistory, RolloutPlan
from telemetry.rollout.verdict import RolloutVerdict, rollout_verdict
from telemetry.store.database import InUseError, owned, owned_here
from telemetry.store.private_files import make_folder, open_private
from telemetry.store.reader import OWNED_WITHIN_S, StoreReader
from telemetry.store.rollout_rows import KeptHistory, RolloutEntry, RolloutRow, in_use, insert_row
from telemetry.store.wire import owner_of

# Locks of the processes that decide.
FOLDER: Final = "rollouts"


class RolloutLog:
    """The rows of one rollout, for one writer in one thread. `decided_by` names the writer.

    Raises StoreError if another process writes them, and if the store refuses: then nothing was stored. The first
    writer stores the plan.
    """

    def __init__(
        self, store: Path, plan: RolloutPlan, plan_text: str, now_unix_ns: int, decided_by: str | None = None
    ) -> None:
        self._store, self._name, self._decided_by = store, plan.name, decided_by
        self._lock = _locked(store, plan.name)
        try:
            kept = StoreReader(store).rollout_history(plan.name)
            if kept is None:
                history = first_history(plan, now_unix_ns)
                first = RolloutEntry(
                    0, now_unix_ns, plan.fingerprint, history.stage, history.stage_since_unix_ns, None, decided_by
                )
                keep_row(store, RolloutRow(plan.name, first, plan_text))
                kept = KeptHistory(history, 0, None, 0, 0)
            self.kept, self._is_unsure = kept, False
        except BaseException:  # an interruption must not keep the rollout locked either
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock, so that another process can write."""
        self._lock.close()

    @property
    def history(self) -> RolloutHistory:
        """The history that the gate takes from earlier looks."""
        return self.kept.history

    def refresh(self) -> None:
        """Read the history again if it is uncertain: after an error, a row may have been stored and the answer lost.
        Raises StoreError."""
        kept = StoreReader(self._store).rollout_history(self._name) if self._is_unsure else None
        if kept is not None:
            self.kept, self._is_unsure = kept, False

    def append(self, plan: RolloutPlan, verdict: GateVerdict) -> RolloutEntry:
        """Store a verdict; it is valid once this returns. Slices that are not worse are stored only at looks that
        changed the decision. Raises StoreError."""
        content = rollout_verdict(plan, verdict)
        if self.kept.decision == verdict.verdict:
            content = msgspec.structs.replace(
                content, slices=tuple(slice_verdict for slice_verdict in content.slices if slice_verdict.is_worse)
            )
        look, history = verdict.history.looks[-1], self.history
        entry = self._keep(
            look.at_unix_ns, plan.fingerprint, history.stage, history.stage_since_unix_ns, verdict=content
        )
        if entry.fingerprint == history.fingerprint:
            history = history.with_look(look)
        self.kept = KeptHistory(history, entry.sequence, verdict.verdict, self.kept.moves, self.kept.begins_here)
        return entry

    def move(self, stage: str, at_unix_ns: int, decided_by: str | None = None) -> RolloutEntry:
        """Store that a stage begins, which is judged by the turns from now on. Raises StoreError."""
        kept, history = self.kept, self.history
        entry = self._keep(at_unix_ns, history.fingerprint, stage, at_unix_ns, decided_by=decided_by)
        begins_here = kept.begins_here + 1 if stage == history.stage else 1
        self.kept = KeptHistory(history.at_stage(stage, at_unix_ns), entry.sequence, None, kept.moves + 1, begins_here)
        return entry

    def _keep(
        self,
        at_unix_ns: int,
        fingerprint: str,
        stage: str,
        since_unix_ns: int | None,
        *,
        verdict: RolloutVerdict | None = None,
        decided_by: str | None = None,
    ) -> RolloutEntry:
        by = decided_by or self._decided_by
        entry = RolloutEntry(self.kept.sequence + 1, at_unix_ns, fingerprint, stage, since_unix_ns, verdict, by)
        self._is_unsure = True
        keep_row(self._store, RolloutRow(self._name, entry))
        self._is_unsure = False
        return entry


def keep_row(store: Path, row: RolloutRow) -> None:
    """Commit a row to a store through the process that owns it. Raises StoreError."""
    until_s = time.monotonic() + OWNED_WITHIN_S
    while True:
        here, sidecar = owned_here(store), owner_of(store)
        if here is not None:
            return insert_row(here, row)
        try:
            if sidecar is not None:
                return sidecar.keep(row)
        except StoreError as error:
            if not isinstance(error.__cause__, ConnectionRefusedError):
                raise
            # The owner was killed, and left its file behind: the store can be opened.
        try:
            with owned(store) as database:
                return insert_row(database, row)
        except InUseError:
            # A sidecar that starts holds the store before it answers, and one that stops after it has answered.
            if time.monotonic() >= until_s:
                raise


def _locked(store: Path, name: str) -> BinaryIO:
    file = store / FOLDER / f"{name}.lock"
    try:
        make_folder(file.parent)
        with ExitStack() as opening:
            lock = opening.enter_context(open_private(file, 0))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            opening.pop_all()
            return lock
    except BlockingIOError:
        raise in_use(store, name) from None
    except OSError as error:
        raise StoreError(f"{file}: cannot be locked ({error.strerror}); check the permissions of the store") from error
