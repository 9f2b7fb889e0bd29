"""Fills `${NAME}` in the query of an address from the environment, where no file and no list of processes shows it."""

import os
import re
from collections.abc import Mapping
from urllib.parse import quote

from loadtest.errors import UsageError

_PLACE = re.compile(r"\$\{([^}]*)\}?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def filled_target(url: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the address with each `${NAME}` in its query replaced by that variable's value, percent-encoded.

    Raises UsageError with one line for each that cannot be replaced. No line shows a value.
    """
    if faults := placeholder_faults(url):
        raise UsageError("\n".join(faults))
    missing = [name for name in names_in(url) if not environment.get(name, "").strip()]
    if missing:
        lines = (f"the environment variable {name}, which the address names, is not set; set it" for name in missing)
        raise UsageError("\n".join(lines))
    return _PLACE.sub(lambda place: quote(environment[place[1]].strip(), safe=""), url)


def placeholder_faults(url: str) -> list[str]:
    """Return what is wrong with the places themselves, whatever the environment holds: one sentence each."""
    before, _, query = url.partition("?")
    faults: list[str] = []
    if "${" in before:
        faults.append("the address has ${…} before its query, where nothing is replaced; move it behind the ?")
    if any(not place[0].endswith("}") or not _VARIABLE.fullmatch(place[1]) for place in _PLACE.finditer(query)):
        faults.append("the address has ${…} without the name of an environment variable; write ${NAME}")
    return faults


def names_in(url: str) -> tuple[str, ...]:
    """Return the names of the environment variables that an address names, each once."""
    return tuple(dict.fromkeys(place[1] for place in _PLACE.finditer(url)))


def secrets_of_target(url: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the values of the variables that an address names."""
    return [value for name in names_in(url) if (value := environment.get(name, "").strip())]
