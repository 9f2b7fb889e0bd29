"""The HTTP receiver's response when the store is not writable: rejected with a retry hint."""

import asyncio

import httpx
from google.rpc.status_pb2 import Status
from starlette.applications import Starlette

from telemetry.sidecar.connection_limits import ConnectionLimits
from telemetry.sidecar.messages import Answer, Answered, Take
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar.otlp.body import Bodies
from telemetry.sidecar.otlp.http import routes
from telemetry.sidecar.otlp.ingest import Ingest
from tests.fixtures_sidecar import turns_json, turns_request
from tests.fixtures_turns import client_turn


def test_a_full_disk_is_503_with_a_retry_after_that_exporters_honor() -> None:
    def full(request: Take) -> None:
        asyncio.get_running_loop().call_soon(
            ingest.answered, Answered((Answer(request.number, failure="the disk is full"),), 0.0, 0.0)
        )

    async def ask() -> list[httpx.Response]:
        app = Starlette(routes=routes(ingest, Bodies(ConnectionLimits()), Access()))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sidecar") as client:
            return [
                await client.post("/v1/traces", content=body, headers={"content-type": content_type})
                for body, content_type in (
                    (turns_request([client_turn()]).SerializeToString(), "application/x-protobuf"),
                    (turns_json([client_turn()]), "application/json; charset=utf-8"),
                )
            ]

    ingest = Ingest(full)
    protobuf, json = asyncio.run(ask())
    for answer in (protobuf, json):
        assert answer.status_code == 503
        assert 0 < int(answer.headers["retry-after"]) <= 2
    assert "the disk is full" in Status.FromString(protobuf.content).message
    assert json.json()["code"] == 14
