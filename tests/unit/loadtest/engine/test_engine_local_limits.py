"""Exhausted local resources are distinguished from faults of an endpoint or the network, with advice."""

import errno
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from loadtest.engine import local_limits
from loadtest.engine.local_limits import LocalLimits, buffers_exhausted, files_needed, shortage_of_files
from loadtest.protocols.failure import Failure

# In a separate process: an unprivileged user cannot raise a hard limit that was lowered.
_PROGRAM = """
import json, resource
from loadtest.engine.local_limits import LocalLimits
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
hard = 900 if hard == resource.RLIM_INFINITY else min(hard, 900)
resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
limits = LocalLimits()
limits.allow_many_files()
print(json.dumps([hard, resource.getrlimit(resource.RLIMIT_NOFILE)[0], limits.files]))
"""


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    output = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True, text=True).stdout
    hard, soft, limit = json.loads(output)
    assert soft == limit == hard > 300


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EMFILE, "the 1,024 files it may open; raise the limit (ulimit -n)"),
        (errno.ENFILE, "this machine has run out of open files; raise its limit (fs.file-max)"),
        (errno.ENOBUFS, "no buffers left for sockets; use fewer callers"),
        (errno.ENOMEM, "no memory left for another connection; use fewer callers"),
        (errno.EAGAIN, "widen net.ipv4.ip_local_port_range"),
    ],
)
def test_shortage_on_this_machine_gives_remedy(code: int, words: str) -> None:
    limits = LocalLimits()
    limits.files = 1024
    exhausted = limits.exhausted(OSError(code, "as the system says it"))
    assert exhausted is not None
    assert words in str(exhausted)
    assert exhausted.failure == Failure("generator", errno.errorcode[code])
    assert limits.connect_exhausted(OSError(code, ""), socket.AF_INET, ("127.0.0.1", 1), "h:1") is not None


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, ""),
        ConnectionResetError(errno.ECONNRESET, ""),
        OSError(errno.EHOSTUNREACH, ""),
        OSError(errno.ENETUNREACH, ""),
        TimeoutError(errno.ETIMEDOUT, ""),
        TimeoutError("timed out"),
    ],
    ids=repr,
)
def test_endpoint_and_network_errors_are_no_local_shortage(error: OSError) -> None:
    assert LocalLimits().exhausted(error) is None
    assert LocalLimits().connect_exhausted(error, socket.AF_INET, ("127.0.0.1", 1), "h:1") is None
    assert buffers_exhausted(error) is None


def test_an_open_connection_can_lack_buffers_and_nothing_else() -> None:
    error = buffers_exhausted(OSError(errno.ENOBUFS, ""))
    assert error is not None
    assert error.failure == Failure("generator", "ENOBUFS")
    assert buffers_exhausted(BlockingIOError(errno.EAGAIN, "")) is None


def no_address(host: str = "127.0.0.1") -> Any:
    error = OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return LocalLimits().connect_exhausted(error, family, (host, 9), f"{host}:9")


def test_no_local_port_is_left_if_machine_has_source_address() -> None:
    error = no_address()
    assert error.failure == Failure("generator", "EADDRNOTAVAIL")
    assert "no local port left" in str(error)
    assert "for connections to 127.0.0.1:9; widen the range (sysctl net.ipv4.ip_local_port_range)" in str(error)


class _Unusable:
    """A datagram socket of a machine that has no such address, or lacks a port."""

    def __init__(self, code: int) -> None:
        self._code = code

    def __call__(self, *_: object) -> "_Unusable":
        return self

    def connect(self, address: object) -> None:
        raise OSError(self._code, "")

    bind = connect

    def close(self) -> None:
        """Nothing."""


@contextmanager
def datagrams_fail(monkeypatch: pytest.MonkeyPatch, code: int) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(local_limits, "_socket", type("module", (), {"socket": _Unusable(code)}))
        yield


@pytest.mark.parametrize("code", [errno.EADDRNOTAVAIL, errno.ENETUNREACH])
def test_machine_without_address_of_family_lacks_no_port(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Connecting to ::1 with IPv6 switched off is such a case."""
    with datagrams_fail(monkeypatch, code):
        assert no_address("::1") is None
    with datagrams_fail(monkeypatch, errno.EAGAIN):  # it lacks ports of both kinds
        assert no_address("::1") is not None


@pytest.mark.parametrize(
    ("code", "cause"),
    [(errno.EMFILE, "EMFILE"), (errno.EADDRINUSE, "EADDRNOTAVAIL"), (errno.ENOBUFS, "ENOBUFS"), (errno.EACCES, None)],
)
def test_lookup_without_socket_is_no_answer_of_name_server(
    monkeypatch: pytest.MonkeyPatch, code: int, cause: str | None
) -> None:
    unknown = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    assert LocalLimits().lookup_exhausted(unknown) is None
    with datagrams_fail(monkeypatch, code):
        error = LocalLimits().lookup_exhausted(unknown)
    assert (None if error is None else error.failure.code) == cause
    assert LocalLimits().lookup_exhausted(socket.gaierror(socket.EAI_MEMORY, "")) is not None
    assert LocalLimits().lookup_exhausted(OSError(errno.EMFILE, "")) is not None  # as EAI_SYSTEM shows


def test_the_last_descriptors_are_not_for_calls() -> None:
    limits = LocalLimits()
    limits.check_reserve(10_000)
    limits.files = 100
    limits.check_reserve(79)
    with pytest.raises(local_limits.Exhausted, match="the 100 files it may open"):
        limits.check_reserve(80)


@pytest.mark.parametrize(
    ("calls", "processes", "limit", "is_short"),
    [
        (90, 1, 100, True),
        (90, 2, 100, False),  # 45 in each
        (90, 1, 126, False),
        (90, 1, None, False),
        (1000, 1, 1024, True),
        (1000, 2, 1024, False),
        (1, 1, 36, True),
    ],
)
def test_files_are_counted_before_the_first_call(calls: int, processes: int, limit: int | None, is_short: bool) -> None:
    assert (shortage_of_files(calls, processes, limit) is not None) is is_short


def test_shortage_of_files_gives_needed_and_available_number() -> None:
    assert shortage_of_files(90, 1, 100) == (
        "90 calls at the same time need about 126 open files, and a process may open 100 here (ulimit -n); raise the"
        " limit (ulimit -n 1024, as root or in limits.conf), or use fewer callers, --processes 2 or more machines"
    )
    assert "in each of 2 processes" in (shortage_of_files(200, 2, 100) or "")
    assert "--processes" not in (shortage_of_files(5, 1, 36) or "--processes")
    assert files_needed(90) == 126
