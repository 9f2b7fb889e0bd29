"""The number of cores that this process and its children may use: by affinity, and by the limit of a control group."""

import os
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_GROUP: Final = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = CGROUPS, own_group: Path = OWN_GROUP) -> int:
    """Whole cores, at least 1: those that affinity (`taskset`, a container's cpuset) leaves, or fewer where a control
    group limits the CPU time. The paths are for tests; where they cannot be read there is no such limit."""
    present = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = _allowed(cgroups, own_group)
    return present if allowed is None else max(1, min(present, int(allowed)))


def most_processes(cores: int) -> int:
    """Return how many processes of callers such a machine may want: one of the cores, or a part of one where there are
    two, is for the sidecar and what else runs there."""
    return max(min(2, cores), cores - 1)


def _allowed(cgroups: Path, own_group: Path) -> float | None:
    """CPU seconds a second that the tightest limit among the own group and those around it allows; None without one."""
    limits: list[float] = []
    for line in _read(own_group).splitlines():
        _, controllers, group = line.split(":", 2)
        names = controllers.split(",")
        if controllers and "cpu" not in names:
            continue
        root = cgroups / controllers if controllers else cgroups
        place = root / group.strip("/")
        for folder in (place, *place.parents):
            limits += _limit(folder)
            if folder == root:
                break
    return min(limits, default=None)


def _limit(folder: Path) -> list[float]:
    words = _read(folder / "cpu.max").split() or [
        _read(folder / "cpu.cfs_quota_us").strip(),
        _read(folder / "cpu.cfs_period_us").strip(),
    ]
    # "max" and -1 mean no limit.
    if len(words) != 2 or not all(word.isdigit() and int(word) for word in words):
        return []
    return [int(words[0]) / int(words[1])]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
