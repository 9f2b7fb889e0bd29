"""One sidecar without a token for all tests that need nothing else of it; each asks about what it sent itself."""

from collections.abc import Generator

import httpx
import pytest

from tests.fixtures_sidecar import running_sidecar
from tests.integration.sidecar.raw_clients import AskedSidecar


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[AskedSidecar]:
    store = tmp_path_factory.mktemp("sidecar") / "store"
    with running_sidecar(store) as sidecar, httpx.Client(base_url=sidecar.http, timeout=120) as client:
        yield AskedSidecar(sidecar, store, client)
