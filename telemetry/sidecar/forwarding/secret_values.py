"""Secrets of destinations, read where the configuration says: a file that only its owner may read, or the environment.

No sentence of this module holds a secret.
"""

import base64
import binascii
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

KEY_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 64 << 10
_OTHERS: Final = 0o077
_HEX: Final = re.compile(rb"[0-9a-fA-F]{64}")
_VISIBLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


class SecretError(ValueError):
    """A secret cannot be used; the sentence says where it was looked for and how to mend it."""


def from_file(path: Path) -> bytes:
    """Read a file whose mode gives others no right. Raises SecretError."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SecretError(f"{path} is not a regular file")
            if status.st_mode & _OTHERS:
                mode = stat.S_IMODE(status.st_mode)
                raise SecretError(f"{path} has mode {mode:04o} and can be read by others: chmod 600 {path}")
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SecretError(f"{path} cannot be read ({error.strerror})") from error
    if len(content) > _FILE_BYTES_MAX:
        raise SecretError(f"{path} is larger than {_FILE_BYTES_MAX >> 10} KiB and holds no secret")
    return content


def from_environment(variable: str, environment: Mapping[str, str] = os.environ) -> str:
    """Read an environment variable. Raises SecretError if it is missing or empty."""
    value = environment.get(variable, "")
    if not value:
        raise SecretError(f"the environment variable {variable} is missing or empty")
    return value


def header_value(content: bytes, where: str) -> str:
    """A secret as the value of an HTTP header, without the spaces around it. Raises SecretError."""
    text = content.decode("latin-1").strip()
    if not _VISIBLE.fullmatch(text):
        raise SecretError(f"{where} holds no value for a header: it must be one line of visible ASCII characters")
    return text


def encryption_key(content: bytes, where: str) -> bytes:
    """A key of 32 bytes: raw, or as 64 hexadecimal digits, or in base64. Raises SecretError."""
    if len(content) == KEY_BYTES:
        return content
    text = content.strip()
    if _HEX.fullmatch(text):
        return bytes.fromhex(text.decode("ascii"))
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise SecretError(
            f"{where} holds no key of {KEY_BYTES} bytes (raw, 64 hexadecimal digits, or base64): openssl rand -hex 32"
        )
    return key
