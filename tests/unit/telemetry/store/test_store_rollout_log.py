"""Decisions on a rollout as rows of the store: who, when and what; a kill loses nothing that counted."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from telemetry.model.errors import StoreError
from telemetry.rollout.verdict import rollout_verdict
from telemetry.sidecar.rollouts.rollout_log import RolloutLog, keep_row
from telemetry.store.database import Database, owned
from telemetry.store.export import export, import_export
from telemetry.store.reader import StoreReader
from telemetry.store.rollout_rows import RolloutEntry, RolloutRow
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_rollouts import (
    AT_UNIX_NS,
    MINUTE,
    PLAN_TEXT,
    edited,
    keep_verdicts,
    read_rollouts,
    two_stages,
    verdict_of,
)
from tests.fixtures_turns import client_turn

PLAN = two_stages()


def opened(store: Path) -> RolloutLog:
    return RolloutLog(store, PLAN, PLAN_TEXT, AT_UNIX_NS, "a test")


@pytest.mark.slow
def test_every_verdict_comes_back_as_it_was_given(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        held = verdict_of(PLAN, log.history)
        log.append(PLAN, held)
        promoted = verdict_of(PLAN, log.history, turns=4000, at_unix_ns=AT_UNIX_NS + MINUTE)
        log.append(PLAN, promoted)
        log.move("half", AT_UNIX_NS + 2 * MINUTE)
        kept = log.kept
    (record,) = read_rollouts(tmp_path)
    assert (record.name, record.plan_text, record.fingerprint) == ("streaming", PLAN_TEXT, PLAN.fingerprint)
    assert [entry.decision for entry in record.entries] == [None, "hold", "promote", None]
    assert [verdict.verdict for verdict in record.verdicts] == [
        rollout_verdict(PLAN, judged) for judged in (held, promoted)
    ]
    assert {entry.decided_by for entry in record.entries} == {"a test"}
    assert (record.entries[-1].stage, record.entries[-1].at_unix_ns) == ("half", AT_UNIX_NS + 2 * MINUTE)
    with opened(tmp_path) as log:
        assert log.kept == kept
        assert (log.kept.moves, log.kept.begins_here) == (1, 1)
        again = verdict_of(PLAN, log.history, turns=4000, at_unix_ns=AT_UNIX_NS + 3 * MINUTE)
    assert [(look.verdict, look.candidate_turns) for look in kept.history.looks] == [
        ("hold", held.candidate_turns),
        ("promote", promoted.candidate_turns),
    ]
    assert again.stage.name == "half"


def test_the_history_of_the_rows_is_the_one_that_the_gate_made(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        history = log.history
        for place in range(3):
            verdict = verdict_of(PLAN, history, turns=300 + place, at_unix_ns=AT_UNIX_NS + place * MINUTE)
            log.append(PLAN, verdict)
            history = verdict.history
            assert log.history == history
    with opened(tmp_path) as log:
        assert log.history == history


@pytest.mark.slow
def test_an_edited_plan_only_holds_and_is_no_part_of_the_history(tmp_path: Path) -> None:
    keep_verdicts(tmp_path, 2, PLAN)
    other = edited(PLAN)
    with RolloutLog(tmp_path, other, "# edited\n", AT_UNIX_NS) as log:
        before = log.history
        verdict = verdict_of(other, log.history, turns=4000, at_unix_ns=AT_UNIX_NS + 5 * MINUTE)
        log.append(other, verdict)
        assert (verdict.verdict, log.history) == ("hold", before)
        assert verdict.reasons[0] == (
            "the plan was edited after 2 looks: restore it, or begin a rollout of another name"
        )
    (record,) = read_rollouts(tmp_path)
    assert (record.plan_text, record.entries[-1].fingerprint) == (PLAN_TEXT, other.fingerprint)
    with opened(tmp_path) as log:
        assert log.history == before


def test_a_second_writer_gets_one_sentence(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(StoreError) as caught:
        opened(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: another process evaluates the rollout streaming; ask that one, or end it"
    )
    with opened(tmp_path):
        pass


@pytest.mark.slow
def test_a_row_is_there_once_however_often_it_is_sent(tmp_path: Path) -> None:
    keep_verdicts(tmp_path, 1, PLAN)
    row = RolloutRow(PLAN.name, RolloutEntry(2, AT_UNIX_NS, PLAN.fingerprint, "half", AT_UNIX_NS))
    for _ in range(2):  # the answer to the first was lost
        keep_row(tmp_path, row)
    assert len(read_rollouts(tmp_path)[0].entries) == 3
    other = msgspec.structs.replace(row, entry=RolloutEntry(2, AT_UNIX_NS + 1, PLAN.fingerprint, "half", None))
    with pytest.raises(StoreError, match="another process evaluates the rollout streaming"):
        keep_row(tmp_path, other)


def test_failed_append_keeps_no_verdict_and_next_one_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_verdicts(tmp_path, 1, PLAN)
    with opened(tmp_path) as log:
        kept, verdict = log.kept, verdict_of(PLAN, log.history, at_unix_ns=AT_UNIX_NS + MINUTE)
        with owned(tmp_path) as database, monkeypatch.context() as patched:
            patched.setattr(Database, "snapshot", _full(database))
            with pytest.raises(StoreError, match="verdicts cannot be kept there \\(the disk is full\\); none counts"):
                log.append(PLAN, verdict)
        assert log.kept == kept
        log.append(PLAN, verdict)
    assert len(read_rollouts(tmp_path)[0].entries) == 3


def _full(database: Database) -> object:
    real = database.snapshot

    class _Cursor:
        def __init__(self) -> None:
            self._context = real()

        def __enter__(self) -> "_Cursor":
            self._cursor = self._context.__enter__()
            return self

        def __exit__(self, *exception: object) -> None:
            self._context.__exit__(None, None, None)

        def execute(self, statement: str, *values: object) -> object:
            if statement == "COMMIT":
                import duckdb

                raise duckdb.IOException("could not write: No space left on device")
            return self._cursor.execute(statement, *values)

    return lambda _self: _Cursor()


@pytest.mark.slow
def test_store_without_rollout_rows_reads_empty_and_accepts_them(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch(turns=[client_turn(0)]))
        with writer.change() as cursor:
            cursor.execute("DROP TABLE rollout_rows")
    reader = StoreReader(tmp_path)
    assert (reader.rollouts(), reader.rollout_history("streaming")) == ((), None)
    before = reader.state()
    keep_verdicts(tmp_path, 1, PLAN)
    assert len(read_rollouts(tmp_path)[0].entries) == 2
    assert reader.state() > before


def test_every_change_among_many_entries_is_kept(tmp_path: Path) -> None:
    at = 500
    with owned(tmp_path) as database:
        with RolloutLog(tmp_path, PLAN, PLAN_TEXT, AT_UNIX_NS):
            pass
        with database.snapshot() as cursor:
            cursor.execute(
                """
                INSERT INTO rollout_rows BY NAME SELECT 'streaming' AS rollout, n AS sequence, n AS at_unix_ns,
                if(n < 777, 'a', 'b') AS stage, if(n = 333, 'promote', 'hold') AS decision FROM range(1, 5000) t(n)
                """
            )
            cursor.execute("UPDATE rollout_rows SET fingerprint = 'f', at_unix_ns = sequence")
            cursor.execute("COMMIT")
        (record,) = StoreReader(tmp_path).rollouts(100)
        assert len(StoreReader(tmp_path).rollouts(at)[0].entries) <= at + 10
    sequences = [entry.sequence for entry in record.entries]
    assert {0, 333, 334, 777, 4999} <= set(sequences)
    assert 90 <= len(sequences) <= 110
    assert sequences == sorted(sequences)


@pytest.mark.slow
def test_exported_verdicts_are_imported_once(tmp_path: Path) -> None:
    keep_verdicts(tmp_path / "store", 2, PLAN)
    export(tmp_path / "store", tmp_path / "exported")
    for _ in range(2):
        import_export(tmp_path / "exported", tmp_path / "again")
    assert read_rollouts(tmp_path / "again") == read_rollouts(tmp_path / "store")
    before, after = (StoreReader(tmp_path / name).rollout_history(PLAN.name) for name in ("store", "again"))
    assert before == after is not None


@pytest.mark.slow
def test_kill_while_verdicts_are_appended_loses_none_committed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    verdict_of(PLAN)  # made before, so that the life is a short one
    child = os.fork()
    if child == 0:
        with owned(tmp_path), opened(tmp_path) as log:
            for place in range(10_000):
                log.append(PLAN, verdict_of(PLAN, log.history, at_unix_ns=AT_UNIX_NS + place * MINUTE))
                os.write(writing, b"x")
        os._exit(1)
    os.close(writing)
    counted = len(os.read(reading, 1))
    while counted < 40:
        counted += len(os.read(reading, 40))
    os.kill(child, signal.SIGKILL)
    with os.fdopen(reading, "rb") as rest:
        counted += len(rest.read())
    os.waitpid(child, 0)
    with opened(tmp_path) as log:
        assert counted <= len(log.history.looks) <= counted + 1
        log.append(PLAN, verdict_of(PLAN, log.history, at_unix_ns=AT_UNIX_NS + 20_000 * MINUTE))
    sequences = [entry.sequence for entry in read_rollouts(tmp_path)[0].entries]
    assert sequences == [*range(len(sequences))]
