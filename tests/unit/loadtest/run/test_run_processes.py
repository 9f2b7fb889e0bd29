"""Ports for the processes that a command starts."""

import os
import socket
from pathlib import Path

from loadtest.run.processes import BYSTANDER_NICENESS, ending, free_port, start, wait_until_ready

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_port_that_nobody_prefers_can_be_listened_on_and_is_taken_by_no_outgoing_connection() -> None:
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


def test_a_bystander_yields_the_processor_until_it_need_no_longer(tmp_path: Path) -> None:
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
