"""Which run somebody means: a folder, a run id, the beginning of one, `STORE#RUN`, or the address of a sidecar."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from telemetry.model.errors import ConfigError
from telemetry.store.remote import is_address
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.run_folders.entries import RunEntry

SEPARATOR: Final = "#"
_MOST_NAMED: Final = 5


def find_run(
    text: str, listed: Callable[[], Sequence[RunEntry]], open_catalog: Callable[[str], RunCatalog]
) -> RunEntry:
    """The one run that is meant. `listed` are the runs to choose from by name; `open_catalog` lists another place.

    A place with one run means that run; of a store with several the newest is never guessed. Raises ConfigError.
    """
    if (text and Path(text).is_dir()) or (is_address(text) and SEPARATOR not in text):
        return _only(text, open_catalog(text).entries(), f"give {text}{SEPARATOR}RUN")
    if SEPARATOR in text:
        store, _, run_id = text.rpartition(SEPARATOR)
        inside = open_catalog(store).entries()
        return _only(text, _named(run_id, inside), f"known are {_names(inside)}")
    known = listed()
    found = _named(text, known)
    return _only(text, found, f"known are {_names(known)}" if known else "there are no runs here")


def _named(text: str, known: Sequence[RunEntry]) -> list[RunEntry]:
    exact = [each for each in known if text in (each.run_id, each.name)]
    return exact or [each for each in known if text and (each.run_id.startswith(text) or each.name.startswith(text))]


def _only(text: str, found: Sequence[RunEntry], advice: str) -> RunEntry:
    if not found:
        raise ConfigError(text, [f"is no run: {advice}"])
    if len(found) > 1:
        raise ConfigError(text, [f"is {len(found):,} runs ({_names(found)}): {advice}"])
    return found[0]


def _names(known: Sequence[RunEntry]) -> str:
    names = [each.name or each.run_id for each in known[:_MOST_NAMED]]
    return ", ".join([*names, f"{len(known) - _MOST_NAMED:,} more"] if known[_MOST_NAMED:] else names) or "none"
