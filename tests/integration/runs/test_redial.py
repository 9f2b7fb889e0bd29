"""A caller whose calls fail waits longer before each further one: real processes, connections counted by the server."""

from pathlib import Path

import pytest

from tests.integration.commands import completed
from tests.integration.raw_endpoint import READY, Behave, raw_endpoint, refusing, upgraded
from tests.nightly import nightly_after

RUN_S = 8
# One connection before the run; then waits of 1, 2 and 4 s at least, so that a slow machine only makes fewer.
MOST = 1 + 4


@pytest.mark.parametrize(
    "behave",
    nightly_after(1, [upgraded(READY, hold=False), refusing("500 Internal Server Error")]),
    ids=["dropped", "refused"],
)
def test_an_endpoint_that_fails_each_call_is_not_flooded(tmp_path: Path, behave: Behave) -> None:
    first = upgraded(READY)  # a session before the run: the target is reached
    with raw_endpoint(first, behave) as endpoint:
        done = completed(
            "run", endpoint.url, "--users", "1", "--run-time", f"{RUN_S}s", "--out", str(tmp_path), cwd=tmp_path
        )
    assert 2 < len(endpoint.accepted_s) <= MOST, done.stdout + done.stderr
