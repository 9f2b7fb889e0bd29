"""The redactor of a store: with the key of its pseudonyms, a file that only its owner may read, and lists of names."""

import os
import secrets
from importlib.resources import files
from pathlib import Path
from typing import Final

from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.personal_data import KEY_BYTES, Names
from telemetry.sidecar.privacy.requests import Redactor
from telemetry.sidecar.privacy.rules import PrivacyRules
from telemetry.sidecar.secret_files import SecretFileError, secret_content
from telemetry.store.private_files import fsync_directory, make_folder, write_durably

KEY_NAME: Final = "pseudonyms.key"
_FILE_BYTES_MAX: Final = 4096
_SHIPPED: Final = "given-names.txt"


def redactor_of_store(store: Path, *, keep_text: bool = False, names: Path | None = None) -> Redactor:
    """Return what takes out of requests what may not be in this store; `names` is a file of names, one a line, beside
    those that are shipped. Raises ConfigError when it cannot be read, and StoreError when the store's key cannot be
    used."""
    shipped = (files("telemetry") / "data" / _SHIPPED).read_text(encoding="utf-8")
    try:
        own = "" if names is None else names.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(names), [f"the list of names cannot be read ({error}); one a line, in UTF-8"]) from error
    lines = f"{shipped}\n{own}".splitlines()
    people = Names(line for line in lines if not line.startswith("#"))
    return Redactor(PrivacyRules(pseudonym_key(store), keep_text, people))


def pseudonym_key(store: Path) -> bytes:
    """The key of a store, made where there is not one yet. Raises StoreError when it cannot be read or made, and when
    others than its owner may read it."""
    path = store / KEY_NAME
    try:
        if not path.exists():
            _make(store, path)
        key = secret_content(path, _FILE_BYTES_MAX)
    except OSError as error:
        raise StoreError(f"{path}: the key of the store's pseudonyms cannot be made ({error.strerror})") from error
    except SecretFileError as error:
        raise StoreError(f"the key of the store's pseudonyms: {error}") from error
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
