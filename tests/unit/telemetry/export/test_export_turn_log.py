"""What a process has finished survives it: logged until handed on."""

import errno
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from telemetry.export.turn_log import TurnLog
from telemetry.export.wal import LogFile, logs_in
from telemetry.model.turns import Turn
from tests.fixtures_turns import client_turn


def _left(directory: Path) -> list[Turn]:
    turns: list[Turn] = []
    for path in logs_in(directory):
        log = LogFile.open(path)
        for record, _ in log.pending():
            assert (record.kind, record.items) == ("turn", 1)
            turns.append(msgspec.json.decode(record.payload, type=Turn))
        log.close()
    return turns


def test_turns_stay_until_others_answer_for_them(tmp_path: Path) -> None:
    wal = TurnLog(tmp_path, "p1")
    given_turns = [client_turn(index) for index in range(6)]
    for turn in given_turns[:3]:
        wal.note(turn)
    wal.settle(handed_on=0, waiting=9)  # nine spans of three turns wait
    for turn in given_turns[3:]:
        wal.note(turn)
    wal.settle(handed_on=8, waiting=10)
    assert [turn.sequence or 0 for turn in _left(tmp_path)] == [0, 1, 2, 3, 4, 5]
    wal.settle(handed_on=9, waiting=9)
    assert [turn.sequence for turn in _left(tmp_path)] == [3, 4, 5]
    wal.settle(handed_on=18, waiting=0)
    assert _left(tmp_path) == []
    wal.note(given_turns[0])
    wal.close()
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_killed_leaves_its_turns_and_half_a_turn_is_left_out(tmp_path: Path) -> None:
    program = (
        "import sys, os, signal; from pathlib import Path; from telemetry.export.turn_log import TurnLog;"
        "from tests.fixtures_turns import client_turn; journal = TurnLog(Path(sys.argv[1]), 'p1');"
        "[journal.note(client_turn(index)) for index in range(50)]; os.kill(os.getpid(), signal.SIGKILL)"
    )
    folder = tmp_path / "spool"
    ended = subprocess.run([sys.executable, "-c", program, str(folder)], cwd=Path(__file__).parents[4], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert _left(folder) == [client_turn(index) for index in range(50)]
    (path,) = folder.iterdir()
    os.truncate(path, path.stat().st_size - 7)
    assert _left(folder) == [client_turn(index) for index in range(49)]


def test_a_disk_that_fails_is_reported_once_and_what_it_holds_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wal = TurnLog(tmp_path, "p1")
    wal.note(client_turn(0))
    real = os.pwrite

    def half(file: int, data: bytes, offset: int) -> int:
        real(file, bytes(data)[:20], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with caplog.at_level(logging.WARNING), monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", half)
        for index in (1, 2):
            wal.note(client_turn(index))
            wal.settle(0, 2)
    assert [record.getMessage() for record in caplog.records] == [
        "turns are kept in memory only until they are sent: [Errno 28] No space left on device"
    ]
    assert _left(tmp_path) == [client_turn(0)]
    wal.close()
    assert list(tmp_path.iterdir()) == []
