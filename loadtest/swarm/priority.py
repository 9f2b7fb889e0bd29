"""The generator asks for the processor before others: audio that waits for it would be blamed on the service."""

import contextlib
import os
from pathlib import Path
from typing import Final

WANTED_NICENESS: Final = -10


def ask_for_priority(pid: int = 0) -> int | None:
    """Raise a process (this one, unless another is named) where the system lets us (root, or CAP_SYS_NICE). The
    niceness it has now, for the evidence; None where the system has no such thing.

    Where Linux groups processes by session, niceness counts only inside a group, and the group has one of its own: it
    is raised too, if this process leads the session (as under `voiceprobe run`), never that of somebody's shell.
    """
    if not hasattr(os, "setpriority"):
        return None
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, WANTED_NICENESS)
    if os.getsid(pid) == (pid or os.getpid()):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid or 'self'}/autogroup").write_text(str(WANTED_NICENESS))
    return os.getpriority(os.PRIO_PROCESS, pid)
