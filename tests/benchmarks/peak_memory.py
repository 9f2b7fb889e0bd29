"""The most that a process has held at a time."""

from pathlib import Path


def peak_rss_bytes_of(pid: int | str) -> int | None:
    """The peak of a process, or with "self" of this one; None where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)
