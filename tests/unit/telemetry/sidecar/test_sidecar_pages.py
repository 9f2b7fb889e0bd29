"""The pages that ask for no token, and what they keep for those who have it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from starlette.applications import Starlette

from telemetry.sidecar.faults import FaultBoard, StoreFault
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar.pages import ShownState, routes

FAULTS = (StoreFault("room", "/srv/store: the disk is nearly full"), StoreFault("commit", "/srv/x: full", True))


def _answer(
    page: str, faults: tuple[StoreFault, ...], access: Access, *, token: str = "", stopping: bool = False
) -> tuple[int, Any]:
    board = FaultBoard()
    for fault in faults:
        board.set(fault.name, fault.sentence, stops_storing=fault.stops_storing)
    counts = cast(Any, SimpleNamespace(faults=board))
    application = Starlette(routes=routes(ShownState(counts, cast(Any, None), access, lambda: stopping)))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            return await client.get(page, headers={"authorization": f"Bearer {token}"})

    answer = asyncio.run(ask())
    return answer.status_code, answer.json()


@pytest.mark.parametrize(("access", "token"), [(Access(), ""), (Access("s3cret"), "s3cret")])
def test_faults_are_explained_with_full_access(access: Access, token: str) -> None:
    explained = {fault.name: fault.sentence for fault in FAULTS}
    assert _answer("/healthz", FAULTS, access, token=token) == (200, {"alive": True, "faults": explained})
    assert _answer("/readyz", FAULTS, access, token=token) == (503, {"ready": False, "reasons": ["/srv/x: full"]})


@pytest.mark.parametrize("access", [Access("s3cret"), Access(requires_certificate=True)])
def test_a_probe_without_a_secret_sees_the_names_of_faults_only(access: Access) -> None:
    named = {"room": "room", "commit": "commit"}
    assert _answer("/healthz", FAULTS, access, token="wrong") == (200, {"alive": True, "faults": named})
    assert _answer("/readyz", FAULTS, access) == (503, {"ready": False, "reasons": ["commit"]})
    assert _answer("/readyz", FAULTS[:1], access) == (200, {"ready": True, "reasons": []})


def test_a_sidecar_that_stops_is_not_ready_and_says_why() -> None:
    reasons = ["the sidecar is stopping"]
    assert _answer("/readyz", (), Access("s3cret"), stopping=True) == (503, {"ready": False, "reasons": reasons})
    assert _answer("/healthz", (), Access("s3cret"), stopping=True)[0] == 200
