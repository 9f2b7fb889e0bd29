"""Checks that a result file can be written before the work starts, and writes it atomically."""

import contextlib
import os
from pathlib import Path


def unwritable(file: Path) -> str | None:
    """Return a sentence saying why a file cannot be written, or None if it can. Missing folders are not a fault."""
    with contextlib.suppress(OSError, ValueError):  # which are said below
        if file.is_dir():
            return f"{_shown(file)} is a folder; give the name of a file"
        if is_device(file):
            return None if os.access(file, os.W_OK) else f"{_shown(file)} cannot be written: permission denied"
    return _why_not(file, _shown(file))


def unwritable_folder(folder: Path) -> str | None:
    """Return a sentence saying why nothing can be written into a folder, or None if it can. It may be missing."""
    return _why_not(folder / "x", _shown(folder))


def _shown(path: Path) -> str:
    return ascii(str(path))[1:-1] if not str(path).isprintable() else str(path)


def _why_not(file: Path, shown: str) -> str | None:
    try:
        above = next(folder for folder in file.absolute().parents if os.path.lexists(folder))
        if not above.is_dir():
            return f"{shown} cannot be written: {above} is not a folder"
        _try_to_write(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return f"{shown} cannot be written: {reason[:1].lower()}{reason[1:]}; choose another path"
    return None


def write_whole(file: Path, content: bytes) -> None:
    """Write a result atomically, creating missing folders; a device is written to directly.

    Raises OSError, and then leaves nothing behind.
    """
    if is_device(file):
        with file.open("wb") as opened:
            opened.write(content)
        return
    part = _temporary_path(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _temporary_path(file: Path) -> Path:
    return file.with_name(f".{file.name}.{os.getpid()}")


def is_device(file: Path) -> bool:
    """Return whether a path is a terminal, pipe or other device, which is written to and never replaced
    (`/dev/stdout`)."""
    return file.exists() and not file.is_file() and not file.is_dir()


def _try_to_write(file: Path) -> None:
    """Create and remove the folder and the temporary file that an atomic write needs. Raises OSError."""
    folders = [folder for folder in (file.parent, *file.parent.parents) if not folder.exists()]
    made: list[Path] = []
    try:
        for folder in reversed(folders):
            folder.mkdir()
            made.append(folder)
        probe = _temporary_path(file)
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        probe.unlink()
    finally:
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
