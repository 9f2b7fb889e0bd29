"""Where forwarding keeps its files in the folder of a store."""

from pathlib import Path
from typing import Final

from telemetry.store import ingest_log

FOLDER: Final = "forwarding"
_CURSOR_NAME: Final = "cursor"
QUEUE_FOLDER: Final = "queue"
_LOCK_NAME: Final = "lock"


def of_all(store: Path) -> Path:
    """The folder of all destinations."""
    return store / FOLDER


def lock(store: Path) -> Path:
    """The file that the process that forwards has locked."""
    return store / FOLDER / _LOCK_NAME


def cursor(store: Path, name: str) -> Path:
    """The cursor of a destination."""
    return store / FOLDER / name / _CURSOR_NAME


def queue(store: Path, name: str) -> Path:
    """The encrypted queue of a destination that texts are kept for."""
    return store / FOLDER / name / QUEUE_FOLDER


def ingest(store: Path) -> Path:
    """The ingest log."""
    return store / ingest_log.FOLDER
