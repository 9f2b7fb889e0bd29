"""Files that hold a secret: a check of their permissions, and the token in one of them."""

import os
import stat
from pathlib import Path
from typing import Final

from telemetry.model.addresses import checked_token
from telemetry.model.errors import ConfigError

_FILE_BYTES_MAX: Final = 64 << 10
# No access for others, and no write access for the group. It may read: systemd and Kubernetes pass secrets this way.
_FORBIDDEN_BITS: Final = stat.S_IRWXO | stat.S_IWGRP


class SecretFileError(ValueError):
    """Raised for a file that cannot be used as a secret; the sentence names it and says how to fix it, without its
    content."""


def secret_content(path: Path, bytes_max: int) -> bytes:
    """Read a file that only its owner, and a group with read access only, can have seen.

    The file that was checked is the file that is read. Raises SecretFileError.
    """
    try:
        # A pipe without a writer must not block the sidecar.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check(path, os.fstat(descriptor))
            content = os.read(descriptor, bytes_max + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SecretFileError(f"{path} cannot be read ({error.strerror}); give a file that can") from error
    if len(content) > bytes_max:
        raise SecretFileError(f"{path} has more than {bytes_max} bytes and holds no secret; give the right file")
    return content


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SecretFileError(f"{path} is not a file; give one")
    if status.st_uid not in (0, os.geteuid()):
        raise SecretFileError(f"{path} belongs to another user; make it your own: chown {os.geteuid()} {path}")
    if status.st_mode & _FORBIDDEN_BITS:
        mode = stat.S_IMODE(status.st_mode)
        raise SecretFileError(f"{path} is open to other users (mode {mode:04o}); close it: chmod 600 {path}")


def read_token_file(path: Path, place: str) -> str:
    """Read the token of a file, without surrounding whitespace. Raises ConfigError."""
    try:
        content = secret_content(path, _FILE_BYTES_MAX)
    except SecretFileError as error:
        raise ConfigError(place, [str(error)]) from error
    return checked_token(content.decode("latin-1"), f"{place} {path}")
