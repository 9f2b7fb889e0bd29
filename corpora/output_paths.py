"""The files that hold results: whether one can be written, found out before the work is done, and writing it whole."""

import contextlib
import os
from pathlib import Path


def unwritable(file: Path) -> str | None:
    """Why a file cannot be written, in a sentence; None for one that can. Folders that are missing will be made."""
    shown = ascii(str(file))[1:-1] if not str(file).isprintable() else str(file)
    try:
        if file.is_dir():
            return f"{shown} is a folder: name a file to write"
        if is_device(file):
            return None if os.access(file, os.W_OK) else f"{shown} cannot be written: permission denied"
        above = next(folder for folder in file.absolute().parents if os.path.lexists(folder))
        if not above.is_dir():
            return f"{shown} cannot be written: {above} is no folder"
        _try_to_write(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return f"{shown} cannot be written: {reason[:1].lower()}{reason[1:]}; name another place"
    return None


def write_whole(file: Path, content: bytes) -> None:
    """Write a result, with the folders that it lacks: whole or not at all; a device is written to as it is.

    Raises OSError; nothing is left behind then.
    """
    if is_device(file):
        with file.open("wb") as opened:
            opened.write(content)
        return
    part = _beside(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _beside(file: Path) -> Path:
    return file.with_name(f".{file.name}.{os.getpid()}")


def is_device(file: Path) -> bool:
    """Whether it is a terminal, a pipe or another thing that is written to and never replaced (`/dev/stdout`)."""
    return file.exists() and not file.is_file() and not file.is_dir()


def _try_to_write(file: Path) -> None:
    """Make the folder and a file beside the one that is meant, as writing it whole or not at all does, and undo it."""
    folders = [folder for folder in (file.parent, *file.parent.parents) if not folder.exists()]
    made: list[Path] = []
    try:
        for folder in reversed(folders):
            folder.mkdir()
            made.append(folder)
        probe = _beside(file)
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        probe.unlink()
    finally:
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
