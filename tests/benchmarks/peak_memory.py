"""The most memory that a process has held at a time."""

import resource
import sys
from pathlib import Path


def peak_rss_bytes() -> int:
    """The peak of this process since its program began."""
    if (peak := peak_rss_bytes_of("self")) is not None:
        return peak
    # On Linux this would begin with what its parent held; macOS counts in bytes, others in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def peak_rss_bytes_of(pid: int | str) -> int | None:
    """The peak of another process; None where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)
