"""The generator asks for the processor before others: audio that waits for it would be blamed on the service."""

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loadtest.errors import UsageError

# What a user may say of it: "normal" where the service under test runs on the same processors and is to have its share.
VARIABLE: Final = "VOICEPROBE_PRIORITY"
CHOICES: Final = ("real-time", "normal")
REALTIME_PRIORITY: Final = 1
WANTED_NICENESS: Final = -10


@dataclass(frozen=True, slots=True)
class Priority:
    """What a process has of the processor before others: part of the evidence. None where there is no such thing."""

    realtime: bool
    niceness: int | None


def ask_for_priority(pid: int = 0) -> Priority | None:
    """Raise the main thread of a process (this one, unless another is named) as far as the system lets us.

    As audio software does it: real-time round robin at its lowest level (root, CAP_SYS_NICE or RLIMIT_RTPRIO), which
    children do not inherit and of which Linux by default leaves a twentieth of a core to the others. Without it a tick
    waits for up to 4 ms on kernels that let a busy process run on until their own next tick. Where that is not allowed,
    or not wanted: niceness. None if the system has neither. Raises UsageError for an unknown choice in the environment.
    """
    realtime_wanted = wants_realtime()
    if not hasattr(os, "setpriority"):
        return None
    realtime = realtime_wanted and _ask_for_realtime(pid)
    return Priority(realtime, _ask_for_niceness(pid))


def leave_realtime_to_the_pacer() -> Priority | None:
    """Have this thread scheduled normally, with the best niceness; return what the pacer thread gets.

    That thread asks for itself, by `ask_for_priority`. Python that runs in real time would only delay it: the system
    takes the processor from all real-time threads of a busy process for 50 ms of each second. Raises UsageError for an
    unknown choice in the environment.
    """
    realtime = may_be_realtime()
    if not hasattr(os, "setpriority"):
        return None
    if os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return Priority(realtime, _ask_for_niceness(0))


def wants_realtime() -> bool:
    """Return whether the user leaves it at real-time priority. Raises UsageError for an unknown choice."""
    choice = os.environ.get(VARIABLE) or CHOICES[0]
    if choice not in CHOICES:
        raise UsageError(f"{VARIABLE}={choice}: there is no such priority; set {' or '.join(CHOICES)}")
    return choice == CHOICES[0]


def may_be_realtime() -> bool:
    """Return whether this process would get real-time priority. It has what it had before. Raises UsageError
    likewise."""
    if not wants_realtime() or not sys.platform.startswith("linux"):
        return False
    before, param = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REALTIME_PRIORITY))
    except OSError:
        return False
    os.sched_setscheduler(0, before, param)
    return True


def _ask_for_realtime(pid: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        os.sched_setscheduler(pid, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(REALTIME_PRIORITY))
    except OSError:
        return False
    return True


def _ask_for_niceness(pid: int) -> int:
    """Return where Linux groups processes by session, niceness counts only inside a group, and the group has one of its
    own: it is raised too, if this process leads the session (as under `voiceprobe run`), never that of somebody's
    shell."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, WANTED_NICENESS)
    if os.getsid(pid) == (pid or os.getpid()):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid or 'self'}/autogroup").write_text(str(WANTED_NICENESS))
    return os.getpriority(os.PRIO_PROCESS, pid)
