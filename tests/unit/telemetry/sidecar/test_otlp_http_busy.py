"""The HTTP receiver's response when the store is not writable: rejected with a retry hint."""

import asyncio
from pathlib import Path

import httpx
from google.rpc.status_pb2 import Status
from starlette.applications import Starlette

from telemetry.model.errors import StoreError
from telemetry.sidecar.otlp.http import routes
from telemetry.sidecar.otlp.ingest import Ingest
from telemetry.store.schema import Batch
from telemetry.store.writer import AppendedTables, StoreWriter
from tests.fixtures_sidecar import turns_json, turns_request
from tests.fixtures_turns import client_turn


class _FullWriter(StoreWriter):
    def append(self, batch: Batch) -> AppendedTables:
        raise StoreError(f"{self.directory}: nothing of {batch.rows} rows could be stored (the disk is full)")


def test_a_full_disk_is_503_with_a_retry_after_that_exporters_honor(tmp_path: Path) -> None:
    async def ask() -> list[httpx.Response]:
        app = Starlette(routes=routes(ingest, None))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sidecar") as client:
            return [
                await client.post("/v1/traces", content=body, headers={"content-type": content_type})
                for body, content_type in (
                    (turns_request([client_turn()]).SerializeToString(), "application/x-protobuf"),
                    (turns_json([client_turn()]), "application/json; charset=utf-8"),
                )
            ]

    with _FullWriter(tmp_path) as writer:
        ingest = Ingest(writer)
        protobuf, json = asyncio.run(ask())
        ingest.close()
    for answer in (protobuf, json):
        assert answer.status_code == 503
        assert 0 < int(answer.headers["retry-after"]) <= 2
    assert "the disk is full" in Status.FromString(protobuf.content).message
    assert json.json()["code"] == 14


def test_a_snapshot_of_the_counts_is_a_copy(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        ingest = Ingest(writer)
        ingest.state.unmapped_spans["a"] = 1
        snapshot = ingest.snapshot()
        ingest.state.unmapped_spans["b"] = 1
        ingest.bad_request()
        ingest.close()
    assert (snapshot.unmapped_spans, snapshot.bad_requests) == ({"a": 1}, 0)
