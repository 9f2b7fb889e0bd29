"""Ports for the processes that a command starts."""

import socket
from pathlib import Path

from loadtest.run.processes import free_port

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
