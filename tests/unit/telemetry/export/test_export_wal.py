"""What a process has finished survives it: logged until handed on, and brought home as the same turn."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from hypothesis import given

from telemetry.export.recovery import revive
from telemetry.export.spool import SpoolRecord
from telemetry.export.wal import TurnLog, left_behind
from telemetry.model.turn_texts import with_plain_texts
from telemetry.model.turns import Turn
from telemetry.sidecar.otlp.decode import decode_traces
from tests.fixtures_turns import client_turn, exchange
from tests.strategies_turns import turns


def _left(directory: Path) -> list[Turn]:
    return [turn for _, found in left_behind(directory) for turn in found]


def test_turns_stay_until_others_answer_for_them(tmp_path: Path) -> None:
    wal = TurnLog(tmp_path, "p1")
    given_turns = [client_turn(index) for index in range(6)]
    for turn in given_turns[:3]:
        wal.note(turn)
    wal.settle(handed_on=0, waiting=9)  # nine spans of three turns wait
    for turn in given_turns[3:]:
        wal.note(turn)
    wal.settle(handed_on=8, waiting=10)
    assert sorted(turn.sequence or 0 for turn in _left(tmp_path)) == [0, 1, 2, 3, 4, 5]
    wal.settle(handed_on=9, waiting=9)
    assert [turn.sequence for turn in _left(tmp_path)] == [3, 4, 5]
    wal.settle(handed_on=18, waiting=0)
    assert _left(tmp_path) == []
    wal.note(given_turns[0])
    wal.close()
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_killed_leaves_its_turns_and_half_a_line_is_left_out(tmp_path: Path) -> None:
    program = (
        "import sys, os, signal; from pathlib import Path; from telemetry.export.wal import TurnLog;"
        "from tests.fixtures_turns import client_turn; journal = TurnLog(Path(sys.argv[1]), 'p1');"
        "[journal.note(client_turn(index)) for index in range(50)]; os.kill(os.getpid(), signal.SIGKILL)"
    )
    folder = tmp_path / "spool"
    ended = subprocess.run([sys.executable, "-c", program, str(folder)], cwd=Path(__file__).parents[4], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert _left(folder) == [client_turn(index) for index in range(50)]
    (path,) = [path for path in folder.iterdir() if path.stat().st_size]
    os.truncate(path, path.stat().st_size - 7)
    assert _left(folder) == [client_turn(index) for index in range(49)]


@given(turns())
def test_a_revived_turn_is_the_turn_that_was_emitted(turn: Turn) -> None:
    records: list[SpoolRecord] = []
    with tempfile.TemporaryDirectory() as name:
        wal = TurnLog(Path(name), "p1")
        wal.note(turn)
        assert revive(Path(name), lambda record: records.append(record) is None)
        assert _left(Path(name)) == []
        wal.close()
    (record,) = records
    points = [value for name, value in msgspec.structs.asdict(turn).items() if name.endswith("_perf_ns") and value]
    last_unix_ns = turn.started_unix_ns + max(points, default=0) - min(points, default=0)
    kept = with_plain_texts(turn)  # the receiver writes control characters out
    # What lies beyond the 63 bits of the store is refused on any way to it.
    assert decode_traces(record.payload, "protobuf").turns in ([[kept]] if last_unix_ns < 2**62 else [[kept], []])


def test_a_log_that_is_not_taken_stays(tmp_path: Path) -> None:
    for owner in ("p1", "p2"):
        wal = TurnLog(tmp_path, owner)
        for turn in exchange(0):
            wal.note(turn)
    taken: list[int] = []

    def first_only(record: SpoolRecord) -> bool:
        taken.append(record.items)
        return len(taken) == 1

    assert not revive(tmp_path, first_only)
    assert len(_left(tmp_path)) == 2
    assert revive(tmp_path, lambda record: True)
    assert _left(tmp_path) == []
    assert revive(tmp_path / "nowhere", first_only)
