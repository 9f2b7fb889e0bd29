"""The generator's hold on the processor: audio that waits for it would be blamed on the service.

It asks for the processor before others. The garbage collector runs short, timed rounds only while callers speak: a full
round walks every object there is, for tens of milliseconds with some hundred callers, and makes each of their turns
invalid. Objects of a call are not in reference cycles, so they are freed without a round. Greenlets with other work run
one at a time: the hub lets all that are ready go on before it looks at its clock again, and ten turns that end together
would hold up every caller's frames for as long as it takes to record ten. Where a thread of its own sends the frames, a
few of them hold nothing up, and a busy loop, which comes round every few milliseconds, could not record as many turns
as end.
"""

import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gevent
from gevent.lock import BoundedSemaphore

from loadtest.errors import UsageError

_PAUSE_S: Final = 0.0003


class GreenletThrottle:
    """Lets one piece of work through at a time.

    It pauses after each that ends later than `busy_s` after the pause before.
    """

    def __init__(self, busy_s: float = 0.0) -> None:
        self._free = BoundedSemaphore(1)
        self._busy_s = busy_s
        self._paused_s = time.monotonic()

    def wait(self) -> None:
        """Wait for a slot without running any work."""
        with self._free:
            gevent.sleep(_PAUSE_S)

    def through(self, work: Callable[[], None]) -> None:
        """Run the work when no other runs, also where the waiting greenlet is killed, so that nothing is lost."""
        try:
            self._free.acquire()
        except BaseException:  # GreenletExit is not an Exception
            work()
            raise
        try:
            work()
            if time.monotonic() - self._paused_s >= self._busy_s:
                gevent.sleep(_PAUSE_S)
                self._paused_s = time.monotonic()
        finally:
            self._free.release()


# Young objects are walked often and therefore shortly; old ones never of the collector's own accord.
_YOUNG: Final = 2000
_YOUNG_ROUNDS: Final = 1
_NEVER: Final = 2**31 - 1


class GcControl:
    """Times every round of the collector that can hold up a call, from the beginning on."""

    def __init__(self) -> None:
        self._began_perf_ns = 0
        self._worst_ns = 0
        self._thresholds = gc.get_threshold()
        gc.callbacks.append(self._note)

    def disable_full_collections(self) -> None:
        """Allow no further full collection. What is loaded now stays, and no later collection walks it."""
        self.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG, _YOUNG_ROUNDS, _NEVER)

    def collect(self) -> None:
        """Run a full collection while no call is under way; it is not among those that are reported."""
        worst_ns = self._worst_ns
        gc.collect()
        self._worst_ns = worst_ns

    def take_worst_ns(self) -> int:
        """The longest round since this was last asked."""
        worst, self._worst_ns = self._worst_ns, 0
        return worst

    def close(self) -> None:
        """Leave the collector as it was."""
        gc.set_threshold(*self._thresholds)
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        del info
        now = time.perf_counter_ns()
        if phase == "start":
            self._began_perf_ns = now
        elif self._began_perf_ns:
            self._worst_ns = max(self._worst_ns, now - self._began_perf_ns)


# What a user may say of it: "normal" where the service under test runs on the same processors and is to have its share.
VARIABLE: Final = "VOICEPROBE_PRIORITY"
CHOICES: Final = ("real-time", "normal")
REALTIME_PRIORITY: Final = 1
WANTED_NICENESS: Final = -10


@dataclass(frozen=True, slots=True)
class Priority:
    """The priority of a process, which is part of the evidence. None where the system has none."""

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
    """Schedule this thread normally, with the best niceness; return the priority of the pacer thread.

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
