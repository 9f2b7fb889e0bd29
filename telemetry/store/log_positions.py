"""Places in a log of numbered files, and small files that note one, replaced atomically."""

import re
import zlib
from pathlib import Path
from typing import Final, NamedTuple

_NOTE: Final = re.compile(r"([0-9]{1,18} [0-9]{1,18}) ([0-9a-f]{8})\n", re.ASCII)
_OWNER_ONLY: Final = 0o600


class Position(NamedTuple):
    """A place between two records: the number of a file and an offset in it. Positions are ordered."""

    file: int
    offset: int


START: Final = Position(0, 0)


def read_position(path: Path) -> Position | None:
    """Read a noted position; None if there is none, or if it cannot be trusted. Raises OSError."""
    try:
        found = _NOTE.fullmatch(path.read_text(encoding="ascii"))
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    if found is None or f"{zlib.crc32(found[1].encode()):08x}" != found[2]:
        return None
    file, offset = found[1].split()
    return Position(int(file), int(offset))


def write_position(path: Path, position: Position) -> None:
    """Note a position. Raises OSError."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.touch(_OWNER_ONLY)
    note = f"{position.file} {position.offset}"
    with temporary.open("w", encoding="ascii") as file:
        file.write(f"{note} {zlib.crc32(note.encode()):08x}\n")
    temporary.replace(path)
