"""The HTTP receiver's response when the store is not writable: rejected with a retry hint."""

import asyncio
from collections.abc import Sequence

import httpx
from google.rpc.status_pb2 import Status
from starlette.applications import Starlette

from telemetry.model.errors import StoreError
from telemetry.sidecar.connection_limits import ConnectionLimits
from telemetry.sidecar.ingest import ExportRequest, Ingest, Outcome
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar.otlp.body import Bodies
from telemetry.sidecar.otlp.http import routes
from tests.fixtures_sidecar import turns_json, turns_request
from tests.fixtures_turns import client_turn


def test_a_full_disk_is_503_with_a_retry_after_that_exporters_honor() -> None:
    class Full:
        def decode(self, request: ExportRequest) -> ExportRequest:
            return request

        def commit(self, group: Sequence[ExportRequest]) -> list[Outcome]:
            return [StoreError("the disk is full") for _ in group]

        def count(self) -> None:
            pass

    async def ask() -> list[httpx.Response]:
        ingest = Ingest(Full())
        ingest.start()
        app = Starlette(routes=routes(ingest, Bodies(ConnectionLimits()), Access()))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sidecar") as client:
            found = [
                await client.post("/v1/traces", content=body, headers={"content-type": content_type})
                for body, content_type in (
                    (turns_request([client_turn()]).SerializeToString(), "application/x-protobuf"),
                    (turns_json([client_turn()]), "application/json; charset=utf-8"),
                )
            ]
        await ingest.stop()
        assert ingest.refused_requests == 2
        return found

    protobuf, json = asyncio.run(ask())
    for answer in (protobuf, json):
        assert answer.status_code == 503
        assert 0 < int(answer.headers["retry-after"]) <= 2
    assert "the disk is full" in Status.FromString(protobuf.content).message
    assert json.json()["code"] == 14
