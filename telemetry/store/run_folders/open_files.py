"""Who has a file of a folder open to write, as Linux shows it. Nothing is locked, touched or waited for."""

import contextlib
import os
from pathlib import Path
from typing import Final

_PROCESSES: Final = Path("/proc")
_WRITES: Final = os.O_WRONLY | os.O_RDWR


def writer_in(folder: Path) -> int | None:
    """A process that has a file below the folder open to write; None where there is none, or nobody can say (another
    system, or processes of another user)."""
    inside = f"{folder.resolve()}{os.sep}"
    with contextlib.suppress(OSError), os.scandir(_PROCESSES) as found:
        for process in found:
            if process.name.isdigit() and _writes(Path(process.path), inside):
                return int(process.name)
    return None


def _writes(process: Path, inside: str) -> bool:
    with contextlib.suppress(OSError), os.scandir(process / "fd") as found:
        for each in found:
            with contextlib.suppress(OSError):
                if str(Path(each.path).readlink()).startswith(inside) and _is_to_write(process, each.name):
                    return True
    return False


def _is_to_write(process: Path, descriptor: str) -> bool:
    for line in (process / "fdinfo" / descriptor).read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return bool(int(value, 8) & _WRITES)
    return False
