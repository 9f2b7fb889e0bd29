"""Secrets of destinations, read where the configuration says: a file that only its owner may read, or the environment.

No sentence of this module holds a secret.
"""

import base64
import binascii
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from telemetry.sidecar.secret_files import SecretFileError, secret_content

KEY_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 64 << 10
_HEX: Final = re.compile(rb"[0-9a-fA-F]{64}")
_VISIBLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


class SecretError(ValueError):
    """A secret cannot be used; the sentence says where it was looked for and how to mend it."""


def from_file(path: Path) -> bytes:
    """Read a file that others cannot have seen. Raises SecretError."""
    try:
        return secret_content(path, _FILE_BYTES_MAX)
    except SecretFileError as error:
        raise SecretError(str(error)) from error


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
