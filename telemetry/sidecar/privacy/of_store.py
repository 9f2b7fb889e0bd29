"""The redactor of a store: with the store's key, and the lists of names."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from telemetry.model.errors import ConfigError
from telemetry.model.personal_data import Names
from telemetry.sidecar.privacy.keys import pseudonym_key
from telemetry.sidecar.privacy.requests import Redactor
from telemetry.sidecar.privacy.rules import PrivacyRules

_SHIPPED: Final = "given-names.txt"


def redactor_of_store(store: Path, *, keep_text: bool = False, names: Path | None = None) -> Redactor:
    """What takes out of requests what may not be in this store; `names` is a file of names, one a line, beside those
    that are shipped. Raises ConfigError when it cannot be read, and StoreError when the store's key cannot be used."""
    shipped = (files("telemetry") / "data" / _SHIPPED).read_text(encoding="utf-8")
    try:
        own = "" if names is None else names.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(names), [f"the list of names cannot be read ({error}); one a line, in UTF-8"]) from error
    lines = f"{shipped}\n{own}".splitlines()
    people = Names(line for line in lines if not line.startswith("#"))
    return Redactor(PrivacyRules(pseudonym_key(store), keep_text, people))
