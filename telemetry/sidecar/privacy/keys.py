"""The key with which a store makes pseudonyms: a file of the store that only its owner may read."""

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from telemetry.model.errors import StoreError
from telemetry.model.personal_data.pseudonyms import KEY_BYTES
from telemetry.store.private_files import fsync_directory, make_folder, write_durably

KEY_NAME: Final = "pseudonyms.key"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def pseudonym_key(store: Path) -> bytes:
    """The key of a store, made where there is not one yet. Raises StoreError when it cannot be read or made, and when
    others than its owner may read it."""
    path = store / KEY_NAME
    try:
        if not path.exists():
            _make(store, path)
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(KEY_BYTES + 1)
    except OSError as error:
        raise StoreError(f"{path}: the key of the store's pseudonyms cannot be used ({error.strerror})") from error
    if mode & _OTHERS:
        raise StoreError(f"{path}: others may read the key of the store's pseudonyms; run chmod 600 {path}")
    if len(key) != KEY_BYTES:
        raise StoreError(
            f"{path}: has {len(key)} bytes, and the key of the store's pseudonyms has {KEY_BYTES}; restore it from a "
            "backup, or delete it: then the same people have other pseudonyms from now on"
        )
    return key


def _make(store: Path, path: Path) -> None:
    make_folder(store)
    temporary = path.with_name(f"{KEY_NAME}.{os.getpid()}.tmp")
    try:
        write_durably(temporary, secrets.token_bytes(KEY_BYTES))
        try:
            os.link(temporary, path)  # whoever was first has made it
        except FileExistsError:
            return
        fsync_directory(store)
    finally:
        temporary.unlink(missing_ok=True)
