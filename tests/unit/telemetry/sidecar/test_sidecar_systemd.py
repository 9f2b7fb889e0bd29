"""The datagrams of the notify protocol."""

import secrets
import socket
from pathlib import Path

import pytest

from telemetry.sidecar import stopping


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_a_state_is_one_datagram(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"@voiceprobe-{secrets.token_hex(8)}" if kind == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0", 1))
        receiver.settimeout(60)
        monkeypatch.setenv(stopping.SOCKET_VARIABLE, name)
        stopping.notify(stopping.READY)
        stopping.notify(stopping.STOPPING)
        assert [receiver.recv(100), receiver.recv(100)] == [b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all", "vsock:2:1"])
def test_missing_notify_socket_is_no_fault(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stopping.SOCKET_VARIABLE, address)
    stopping.notify(stopping.READY)
