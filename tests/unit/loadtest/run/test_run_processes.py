"""Ports for the processes that a command starts, and why one ended."""

import os
import socket
from pathlib import Path

import pytest

from loadtest.run import processes
from loadtest.run.processes import BYSTANDER_NICENESS, ending, free_port, start, wait_until_ready

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_free_port_can_be_listened_on_and_is_not_ephemeral() -> None:
    lowest_outgoing = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
    for _ in range(20):
        port = free_port()
        assert 1024 < port < lowest_outgoing
        socket.create_server(("127.0.0.1", port)).close()


def test_the_preferred_port_is_taken_where_it_is_free() -> None:
    port = free_port()
    assert free_port(port) == port
    with socket.create_server(("127.0.0.1", port)):
        assert free_port(port) != port


def test_two_that_ask_at_once_hardly_ever_get_the_same() -> None:
    assert len({free_port() for _ in range(20)}) > 15


def test_bystander_yields_processor_until_stop_yielding(tmp_path: Path) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    waits = """print('{"ready": true}', flush=True); import time; time.sleep(600)"""
    child = start("bystander", ["-c", waits], tmp_path, says_ready=True)
    with ending(child):
        wait_until_ready(child, 60)
        yields = os.getpriority(os.PRIO_PROCESS, child.process.pid)
        assert yields == max(own, BYSTANDER_NICENESS)
        child.stop_yielding(own)  # raises nothing where it is not permitted
        if os.geteuid() == 0:
            assert os.getpriority(os.PRIO_PROCESS, child.process.pid) == own


TABLE = """Type     Name             # reqs      # fails |    Avg
--------|---------------|-------|-------------|-------
voice    invalid turn          6   6(100.00%) |      0
--------|---------------|-------|-------------|-------
         Aggregated            6   6(100.00%) |      0

Response time percentiles (approximated)
Type     Name                  50%    66%
--------|-------------------|------|------
voice    invalid turn         1600   1900

Error report
# occurrences      Error
------------------|---------------------------------
6                  voice invalid turn: TurnFailed('out of open files')
------------------|---------------------------------

"""
TRACEBACK = """Traceback (most recent call last):
  File "x.py", line 682, in open_binary
OSError: [Errno 24] Too many open files: '/proc/32281/stat'
"""


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("", ""),
        (TABLE, ""),
        (TRACEBACK + TABLE, "OSError: [Errno 24] Too many open files: '/proc/32281/stat'"),
        (TABLE + TRACEBACK, "OSError: [Errno 24] Too many open files: '/proc/32281/stat'"),
        ("voiceprobe: --noise x\nvoiceprobe: --length y\n" + TABLE, "--noise x; --length y"),
        ("voiceprobe: worker 1: z\nvoiceprobe: worker 1: z\n" + TABLE, "worker 1: z"),
        ("Too many open files (src/epoll.cpp:65)\n" + TABLE, "Too many open files (src/epoll.cpp:65)"),
        (TRACEBACK + "voiceprobe: 9 spans are lost\n" + TABLE, f"{TRACEBACK.splitlines()[-1]}; 9 spans are lost"),
        ("x\ny.ConnectionError: gone\n", "y.ConnectionError: gone"),
    ],
)  # fmt: skip
def test_the_reason_for_an_end_is_no_table_of_statistics(log: str, reason: str) -> None:
    assert processes.reason_in(log) == reason


def test_log_of_earlier_process_is_no_reason(tmp_path: Path) -> None:
    (tmp_path / "child.log").write_text("voiceprobe: of an earlier run\n")
    program = "import sys; sys.stderr.write('voiceprobe: of this one\\n'); sys.exit(2)"
    child = processes.start("child", ["-c", program], tmp_path, says_ready=False)
    assert child.process.wait(120) == 2
    assert child.last_words() == "of this one"
