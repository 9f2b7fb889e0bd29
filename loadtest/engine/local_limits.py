"""Limits of this machine for a load generator: open files, local ports, buffers and memory.

A call that finds none of these left says nothing about the endpoint: `Exhausted` is its cause, and says what to do.
"""

import _socket
import contextlib
import errno
import socket as socket_names
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from loadtest.errors import InstrumentError
from loadtest.protocols.failure import Failure

try:
    import resource
except ImportError:  # Windows: sockets are not counted against such a limit
    resource = None

# Open files that no call gets, so that the process can still deliver or store its telemetry and look up host names.
RESERVED_FILES: Final = 20
# What a process opens besides its calls, at least: measured on Linux with one profile, a spool and a sidecar.
_OWN_FILES: Final = 16
# A limit that leaves room for more than the least, to recommend.
_COMMON_LIMIT: Final = 1024
_PORT_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Without a local port left, the code is EADDRNOTAVAIL; a machine without an address of the family gives it as well.
NO_PORT: Final = errno.EADDRNOTAVAIL
_EXHAUSTED: Final[Mapping[int, str]] = {
    errno.ENFILE: "this machine has run out of open files; raise its limit (fs.file-max) or use more machines",
    errno.ENOBUFS: (
        "this machine has no buffers left for sockets; use fewer callers, raise its limit (net.ipv4.tcp_mem) or use"
        " more machines"
    ),
    errno.ENOMEM: "this machine has no memory left for another connection; use fewer callers or more machines",
    errno.EAGAIN: (
        "this machine has no local port or route left for another connection; widen net.ipv4.ip_local_port_range, use"
        " fewer callers or more machines"
    ),
}
_NO_SOURCE: Final = frozenset({errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EAFNOSUPPORT})


class Exhausted(InstrumentError):  # noqa: N818 - reads as what happened
    """This machine, or this process, has no more of something that a call needs; `failure` is the cause."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.failure = Failure("generator", errno.errorcode[code])


def most_files() -> int | None:
    """Return how many files a process of this user may open once it has raised its limit; None if unlimited."""
    if resource is None:
        return None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard


def files_needed(calls: int) -> int:
    """Return how many open files a process needs at least for so many calls at the same time."""
    return _OWN_FILES + calls + RESERVED_FILES


def shortage_of_files(calls: int, processes: int, limit: int | None) -> str | None:
    """Return what is missing for so many calls at the same time in so many processes, and what to do; None if nothing.

    `limit` is how many files one process may open, None if unlimited.
    """
    calls_per_process = -(-calls // max(1, processes))
    if limit is None or files_needed(calls_per_process) <= limit:
        return None
    room = limit - files_needed(0)
    wanted = -(-calls // room) if room > 0 else 0
    more = f", --processes {wanted}" if 0 < wanted <= calls else ""
    shared = "" if processes <= 1 else f" in each of {processes} processes"
    enough = max(_COMMON_LIMIT, 2 * files_needed(calls_per_process))
    return (
        f"{calls:,} call{'' if calls == 1 else 's'} at the same time need about"
        f" {files_needed(calls_per_process):,} open files{shared}, and a process may open {limit:,} here (ulimit -n);"
        f" raise the limit (ulimit -n {enough}, as root or in limits.conf), or use fewer callers{more} or more machines"
    )


def buffers_exhausted(error: OSError) -> Exhausted | None:
    """Return the exhaustion behind an error of an open connection; None if the other side or the network broke it."""
    code = error.errno
    return Exhausted(_EXHAUSTED[code], code) if code in (errno.ENOBUFS, errno.ENOMEM) else None


class LocalLimits:
    """The limits of this process. `files` is how many it may open, None if unlimited or unknown."""

    def __init__(self) -> None:
        self.files: int | None = None

    def allow_many_files(self) -> None:
        """Raise the limit on open files as far as this user is allowed to."""
        if resource is None:
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                soft = hard
            except (OSError, ValueError):  # macOS reports a hard limit that it does not grant
                pass
        self.files = None if soft == resource.RLIM_INFINITY else soft

    def exhausted(self, error: BaseException) -> Exhausted | None:
        """Return the exhaustion behind an error; None if it has another cause. Ports: see `port_exhausted`."""
        code = error.errno if isinstance(error, OSError) else None
        if code == errno.EMFILE:
            return self._no_file()
        return None if code is None or code not in _EXHAUSTED else Exhausted(_EXHAUSTED[code], code)

    def check_reserve(self, descriptor: int) -> None:
        """Raise Exhausted if this descriptor is one of the last that the process may open: they are not for calls."""
        if self.files is not None and descriptor >= self.files - RESERVED_FILES:
            raise self._no_file()

    def _no_file(self) -> Exhausted:
        allowed = "all files" if self.files is None else f"the {self.files:,} files"
        return Exhausted(
            f"this process has used up {allowed} it may open; raise the limit (ulimit -n) or use more processes",
            errno.EMFILE,
        )

    def connect_exhausted(self, error: OSError, family: int, address: Any, where: str) -> Exhausted | None:
        """Return the exhaustion behind an error of a connection attempt; None if the endpoint or network caused it."""
        if error.errno == NO_PORT and _has_source(family, address):
            return no_port(f"for connections to {where}")
        return self.exhausted(error)

    def lookup_exhausted(self, error: OSError) -> Exhausted | None:
        """Return the exhaustion behind a failed look-up of a host name; None if the name server gave the answer.

        The look-up itself does not say so: whether a socket like its own can be opened now, does.
        """
        if isinstance(error, socket_names.gaierror):
            if error.errno == socket_names.EAI_MEMORY:
                return Exhausted(_EXHAUSTED[errno.ENOMEM], errno.ENOMEM)
            return self.datagram_exhausted("for look-ups of host names")
        return self.exhausted(error)

    def datagram_exhausted(self, purpose: str) -> Exhausted | None:
        """Return why no datagram socket can be opened; None if one can."""
        try:
            with contextlib.closing(_socket.socket(socket_names.AF_INET, socket_names.SOCK_DGRAM)) as probe:
                probe.bind(("", 0))
        except OSError as error:
            # With port 0, this is what the kernel says when every port of the range is taken.
            return no_port(purpose) if error.errno == errno.EADDRINUSE else self.exhausted(error)
        return None


def no_thread() -> Exhausted:
    """Return that this process may start no more threads."""
    return Exhausted(
        "this process can start no thread to look up a host name; raise the limit (ulimit -u) or use fewer callers",
        errno.EAGAIN,
    )


def no_port(purpose: str) -> Exhausted:
    """Return the exhaustion of this machine's local ports."""
    of = ""
    with contextlib.suppress(OSError, ValueError):
        first, last = map(int, _PORT_RANGE.read_text().split())
        of = f" of the {last - first + 1:,} in net.ipv4.ip_local_port_range"
    return Exhausted(
        f"this machine has no local port left{of} {purpose}; widen the range (sysctl"
        " net.ipv4.ip_local_port_range), use fewer callers, or more machines or source addresses",
        NO_PORT,
    )


def _has_source(family: int, address: Any) -> bool:
    """Return whether this machine has an address to reach another from, as a datagram socket shows without a packet."""
    try:
        with contextlib.closing(_socket.socket(family, socket_names.SOCK_DGRAM)) as probe:
            probe.connect(address)
    except OSError as error:
        return error.errno not in _NO_SOURCE
    return True
