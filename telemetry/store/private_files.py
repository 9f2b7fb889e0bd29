"""Files and folders that only their owner may read: any of them may contain transcripts or audio.

The modes hold under any umask.
"""

import os
from pathlib import Path
from typing import BinaryIO, Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents; the mode of an existing one is kept. Raises OSError."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir(mode=FOLDER_MODE)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    path.chmod(FOLDER_MODE)


def open_private(path: Path, flags: int) -> BinaryIO:
    """Open a file to write, with `flags` in addition to O_WRONLY and O_CREAT; its mode becomes 0600. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)
        return os.fdopen(descriptor, "wb")
    except BaseException:  # an interruption must not leave the descriptor open either
        os.close(descriptor)
        raise


def write_durably(path: Path, content: bytes) -> None:
    """Write a file and wait until its content is on disk; an incomplete file is removed again. Raises OSError.

    The name is durable only after `fsync_directory`.
    """
    try:
        with open_private(path, os.O_TRUNC) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def fsync_directory(directory: Path) -> None:
    """Make renames in the directory durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
