"""What is kept of the rollouts' logs between two questions: the same until a log changes, and never a fault."""

from pathlib import Path

from telemetry.store.rollout_log import LOG_NAME, RolloutLog, read_rollouts
from telemetry.store.rollout_memory import RolloutMemory
from tests.fixtures_rollouts import AT_UNIX_NS, MINUTE, PLAN_TEXT, keep_verdicts, verdict_of


def test_logs_are_read_again_once_they_changed(tmp_path: Path) -> None:
    of = keep_verdicts(tmp_path, 3)
    memory = RolloutMemory(tmp_path)
    first, stamp = memory.read(), memory.stamp()
    assert first == read_rollouts(tmp_path)
    assert memory.read() is first
    with RolloutLog(tmp_path, of, PLAN_TEXT, AT_UNIX_NS) as log:
        log.append(of, verdict_of(of, log.history, turns=400, at_unix_ns=AT_UNIX_NS + 9 * MINUTE))
    assert memory.stamp() != stamp
    assert len(memory.read()[0].verdicts) == len(first[0].verdicts) + 1


def test_a_fault_is_looked_for_again(tmp_path: Path) -> None:
    keep_verdicts(tmp_path, 3)
    memory = RolloutMemory(tmp_path)
    (log,) = tmp_path.glob(f"rollouts/*/{LOG_NAME}")
    whole = log.read_bytes()
    log.write_bytes(whole.replace(b"hold", b"wait", 1))
    assert memory.read()[0].faults
    log.write_bytes(whole)
    assert memory.read()[0].faults == ()


def test_a_store_without_rollouts_has_none(tmp_path: Path) -> None:
    memory = RolloutMemory(tmp_path)
    assert (memory.stamp(), memory.read()) == ((), ())
