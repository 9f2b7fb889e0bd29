"""The HTTP receiver's response when the store is not writable: rejected with a retry hint."""

import asyncio
from pathlib import Path

import httpx
import pytest
from google.rpc.status_pb2 import Status
from starlette.applications import Starlette

from telemetry.model.errors import StoreError
from telemetry.model.metrics import METRICS
from telemetry.sidecar.otlp.http import routes
from telemetry.sidecar.otlp.ingest import Ingest
from telemetry.sidecar.prometheus import Cap, Exposition, series_name
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


def test_label_values_are_capped() -> None:
    cap = Cap(2, 2)
    assert [cap("a", "1"), cap("b", "1"), cap("c", "1"), cap("a", "1")] == [
        ("a", "1"),
        ("b", "1"),
        ("other", "other"),
        ("a", "1"),
    ]


def test_series_do_not_grow_with_what_is_sent() -> None:
    exposition = Exposition()
    exposition.observe(client_turn(index, cohort=f"cohort-{index}") for index in range(200))
    text = exposition.render("")[0].decode()
    counts = [line for line in text.splitlines() if line.startswith("voice_turns_total{")]
    assert len(counts) == 65
    assert any('cohort="other"' in line and line.endswith(" 136.0") for line in counts)


@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_has_a_series(name: str) -> None:
    assert f"# TYPE {series_name(METRICS[name])} histogram" in Exposition().render("")[0].decode()


def test_missing_turns_are_the_gaps_in_the_numbers() -> None:
    exposition = Exposition()
    exposition.observe([client_turn(3), client_turn(4), client_turn(7), client_turn(0, process_id="worker-2")])
    assert exposition.missing_turns == 2
