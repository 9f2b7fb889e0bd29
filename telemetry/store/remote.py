"""A store by its folder, or by the address of the sidecar that owns it: the same questions."""

from pathlib import Path

from telemetry.sidecar_client import TIMEOUT_S
from telemetry.store.reader import StoreReader
from telemetry.store.wire import AskedSidecar


def is_address(store: str) -> bool:
    """Whether `--store` names a sidecar instead of a folder."""
    return store.startswith(("http://", "https://"))


def open_store(store: str | Path, token: str | None) -> StoreReader:
    """The reader of a folder, or of the sidecar at an address with its token. Raises StoreError for a bad address."""
    return RemoteStore(str(store), token) if is_address(str(store)) else StoreReader(store)


class RemoteStore(StoreReader):
    """Asks the sidecar at `address` (`http://host:4318`) what a StoreReader answers of a folder; thread-safe.

    Raises StoreError for a bad address, and from any question when the sidecar cannot be reached, refuses, or answers
    what this version does not understand.
    """

    def __init__(self, address: str, token: str | None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._sidecar = AskedSidecar(address, token, timeout_s=timeout_s)
        self.directory = Path(self._sidecar.address)
        self.address = self._sidecar.address

    def elsewhere(self) -> AskedSidecar:
        """The sidecar at the address."""
        return self._sidecar
