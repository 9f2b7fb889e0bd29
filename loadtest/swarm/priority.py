"""The generator asks for the processor before others: audio that waits for it would be blamed on the service."""

import contextlib
import os
from pathlib import Path
from typing import Final

WANTED_NICENESS: Final = -10
_AUTOGROUP: Final = Path("/proc/self/autogroup")


def ask_for_priority() -> int | None:
    """Raise this process where the system lets it (root, or CAP_SYS_NICE). The niceness it has now, for the evidence;
    None where the system has no such thing.

    Where Linux groups processes by session, niceness counts only inside a group, and the group has one of its own: it
    is raised too, if this process leads the session (as under `voiceprobe run`), never that of somebody's shell.
    """
    if not hasattr(os, "setpriority"):
        return None
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, WANTED_NICENESS)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            _AUTOGROUP.write_text(str(WANTED_NICENESS))
    return os.getpriority(os.PRIO_PROCESS, 0)
