"""The readers of stores that this process has open: one for each store, which the pages and the list of runs share.

A reader holds its own DuckDB and what it knows of the store's segments: hundreds of MiB and seconds of work where turns
are many. It is open for as long as anybody holds it, and released with its last holder.
"""

from pathlib import Path
from threading import Lock
from typing import Final
from weakref import WeakValueDictionary

from telemetry.client_tls import sidecar_token
from telemetry.store.reader import StoreReader
from telemetry.store.remote import RemoteStore, is_address, open_store

_readers: Final[WeakValueDictionary[str, StoreReader | RemoteStore]] = WeakValueDictionary()
_lock: Final = Lock()


def reader_of(store: str) -> StoreReader | RemoteStore:
    """The one reader of a folder, or of the sidecar at an address, opened where nobody has it open. Others hold it,
    too: nobody closes it. Raises StoreError for a bad address."""
    key = store.rstrip("/") if is_address(store) else str(Path(store).absolute())
    with _lock:
        reader = _readers.get(key)
        if reader is None:
            reader = _readers[key] = open_store(store, sidecar_token())
        return reader
