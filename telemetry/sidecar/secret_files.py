"""Files that hold a secret: who may read them, and the token in one of them."""

import os
import stat
from pathlib import Path
from typing import Final

from telemetry.model.errors import ConfigError

TOKEN_BYTES_MAX: Final = 4096
# Others may do nothing, and the group may not write. It may read: so systemd and Kubernetes hand secrets over.
_FORBIDDEN_BITS: Final = stat.S_IRWXO | stat.S_IWGRP


def check_secret_file(path: Path, place: str) -> None:
    """Refuse a file that others could have read or written. `place` is where it was named.

    Raises ConfigError.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise ConfigError(place, [f"{path} cannot be read ({error.strerror}); give a file that can"]) from error
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(place, [f"{path} is not a file; give one"])
    if found.st_uid not in (0, os.geteuid()):
        raise ConfigError(place, [f"{path} belongs to another user; make it your own: chown {os.geteuid()} {path}"])
    if found.st_mode & _FORBIDDEN_BITS:
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigError(place, [f"{path} is open to other users (mode {mode:04o}); close it: chmod 600 {path}"])


def read_token_file(path: Path, place: str) -> str:
    """Read the token of a file, without the white space around it. Raises ConfigError."""
    check_secret_file(path, place)
    try:
        with path.open("rb") as file:
            content = file.read(TOKEN_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(place, [f"{path} cannot be read ({error.strerror}); give a file that can"]) from error
    return checked_token(content.decode("latin-1").strip(), f"{place} {path}")


def checked_token(token: str, place: str) -> str:
    """Return a token that fits into a header. Raises ConfigError, whose sentence does not show it."""
    if not token or len(token) > TOKEN_BYTES_MAX or not all("!" <= character <= "~" for character in token):
        raise ConfigError(
            place,
            [
                f"a token has 1 to {TOKEN_BYTES_MAX} ASCII characters without spaces, in one line; "
                "make one with: openssl rand -hex 32"
            ],
        )
    return token
