"""The server to which telemetry is sent."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.fixtures_forwarding import UpstreamServer


@pytest.fixture
def upstream() -> Iterator[UpstreamServer]:
    with closing(UpstreamServer()) as server:
        yield server
