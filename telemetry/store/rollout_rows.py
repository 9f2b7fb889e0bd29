"""The rows of rollouts in a store: a row for each verdict and each stage that began, with the time and the deciding
process.

Rows are only added, each in its own transaction: a row is valid once it is committed, and exists once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import duckdb
import msgspec

from telemetry.model.errors import StoreError
from telemetry.rollout.plan import Decision, Look, RolloutHistory
from telemetry.rollout.progress import LoggedVerdict
from telemetry.rollout.verdict import RolloutVerdict
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.database import Database
from telemetry.store.writer import reason_of

# As many as a picture over time can show, and an answer over the network can carry.
MOST_ENTRIES: Final = 1000


@dataclass(frozen=True, slots=True)
class RolloutEntry:
    """One row: a verdict, or if `verdict` is None, a stage that began. `stage` and `since_unix_ns` are the state of the
    rollout after it, `fingerprint` is the plan's. `decided_by` is the process that judged, or started the stage."""

    sequence: int
    at_unix_ns: int
    fingerprint: str
    stage: str
    since_unix_ns: int | None
    verdict: RolloutVerdict | None = None
    decided_by: str | None = None

    @property
    def decision(self) -> Decision | None:
        """The verdict's decision; None for a stage that began."""
        return None if self.verdict is None else self.verdict.verdict

    @property
    def logged(self) -> LoggedVerdict | None:
        """The verdict with its time; None for a stage that began."""
        if self.verdict is None:
            return None
        return LoggedVerdict(self.at_unix_ns, self.verdict.stage, self.since_unix_ns, self.verdict)


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """A rollout as the store keeps it. `entries` are in order, thinned if there are many: all entries at which a
    decision or a stage changed are included."""

    name: str
    plan_text: str
    fingerprint: str
    entries: tuple[RolloutEntry, ...]

    @property
    def verdicts(self) -> tuple[LoggedVerdict, ...]:
        """The verdicts among the entries."""
        return tuple(verdict for entry in self.entries if (verdict := entry.logged) is not None)


@dataclass(frozen=True, slots=True)
class KeptHistory:
    """The state that the gate takes from earlier looks, and the number and decision of the newest row. `moves` is how
    often a stage was started, `begins_here` how often the current one."""

    history: RolloutHistory
    sequence: int
    decision: Decision | None
    moves: int
    begins_here: int


class RolloutRow(msgspec.Struct, frozen=True):
    """A row to store; the first of a rollout has the text of its plan."""

    rollout: str
    entry: RolloutEntry
    plan: str | None = None


def insert_row(database: Database, row: RolloutRow) -> None:
    """Commit a row; an existing one is left as it is. Raises StoreError if it cannot be stored, and if the rollout has
    another row of this number."""
    entry, verdict = row.entry, row.entry.verdict
    logged = entry.logged
    look = None if logged is None else logged.look
    with database.writing, database.snapshot() as cursor:
        try:
            known: Any = cursor.execute(
                "SELECT at_unix_ns, stage, decision FROM rollout_rows WHERE rollout = ? AND sequence = ?",
                [row.rollout, entry.sequence],
            ).fetchone()
            if known is None:
                cursor.execute(
                    "INSERT INTO rollout_rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [
                        *(row.rollout, entry.sequence, entry.at_unix_ns, entry.decided_by, entry.fingerprint),
                        *(entry.stage, entry.since_unix_ns, entry.decision),
                        *((None, None) if look is None else (look.candidate_turns, look.control_turns)),
                        None if verdict is None else msgspec.json.encode(verdict).decode(),
                        row.plan,
                    ],
                )
                cursor.execute("COMMIT")
        except duckdb.Error as error:
            why = database.why_unwritable = reason_of(error)
            raise StoreError(
                f"{database.directory}: verdicts cannot be kept there ({why}); none counts until the disk takes them"
            ) from error
    if known not in (None, (entry.at_unix_ns, entry.stage, entry.decision)):
        raise in_use(database.directory, row.rollout)


def in_use(directory: Path, rollout: str) -> StoreError:
    """The error if two processes decide on one rollout."""
    return StoreError(f"{directory}: another process evaluates the rollout {rollout}; ask that one, or end it")


def kept_rollouts(
    connection: StoreConnection, most_entries: Annotated[int, msgspec.Meta(ge=1, le=MOST_ENTRIES)] = MOST_ENTRIES
) -> tuple[RolloutRecord, ...]:
    """The rollouts whose verdicts the store keeps, by name; of each at most about `most_entries` entries: the first,
    the newest, every one at which the decision or the stage changed, and of the others evenly many."""
    if not has_rollouts(connection):
        return ()
    begun = rows(connection, "SELECT rollout, plan, fingerprint FROM rollout_rows WHERE sequence = 0 ORDER BY rollout")
    entries: dict[str, list[RolloutEntry]] = {row["rollout"]: [] for row in begun}
    for row in rows(
        connection,
        """
        SELECT * FROM rollout_rows WINDOW by_time AS (PARTITION BY rollout ORDER BY sequence)
        QUALIFY lead(sequence) OVER by_time IS NULL
            OR (row_number() OVER by_time - 1) % ceil(count(*) OVER (PARTITION BY rollout) / ?) = 0
            OR lag(stage) OVER by_time IS DISTINCT FROM stage
            OR lag(decision) OVER by_time IS DISTINCT FROM decision
        ORDER BY rollout, sequence
        """,
        [most_entries],
    ):
        verdict = None if row["verdict"] is None else msgspec.json.decode(row["verdict"], type=RolloutVerdict)
        names = ("sequence", "at_unix_ns", "fingerprint", "stage", "since_unix_ns", "decided_by")
        entries[row["rollout"]].append(RolloutEntry(**{name: row[name] for name in names}, verdict=verdict))
    return tuple(
        RolloutRecord(row["rollout"], row["plan"], row["fingerprint"], tuple(entries[row["rollout"]])) for row in begun
    )


def rollout_history(connection: StoreConnection, name: str) -> KeptHistory | None:
    """The history of a rollout; None before its first row. Looks at an edited plan, which can only have held, are no
    part of it."""
    if not has_rollouts(connection):
        return None
    logged = rows(
        connection,
        """
        SELECT sequence, at_unix_ns, fingerprint, stage, since_unix_ns, decision, candidate_turns, control_turns
        FROM rollout_rows WHERE rollout = ? ORDER BY sequence
        """,
        [name],
    )
    if not logged:
        return None
    first, newest = logged[0], logged[-1]
    looks = tuple(
        Look(
            at_unix_ns=row["at_unix_ns"],
            stage=row["stage"],
            candidate_turns=row["candidate_turns"],
            control_turns=row["control_turns"],
            verdict=row["decision"],
        )
        for row in logged
        if row["decision"] is not None and row["fingerprint"] == first["fingerprint"]
    )
    history = RolloutHistory(
        plan=name,
        fingerprint=first["fingerprint"],
        stage=newest["stage"],
        stage_since_unix_ns=newest["since_unix_ns"],
        looks=looks,
    )
    moves = [row["stage"] for row in logged[1:] if row["decision"] is None]
    return KeptHistory(history, newest["sequence"], newest["decision"], len(moves), moves.count(newest["stage"]))


def has_rollouts(connection: StoreConnection | duckdb.DuckDBPyConnection) -> bool:
    """Return whether the store has the table of these rows: a store last written by a version without rollouts does
    not."""
    return bool(connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'rollout_rows'").fetchall())
