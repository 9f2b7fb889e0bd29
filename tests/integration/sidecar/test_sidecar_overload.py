"""A real sidecar under more than it can take: it answers, sends back what it cannot store, and does not grow."""

import asyncio
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.asking import BOUND_S
from tests.fixtures_sidecar import running_sidecar, stored_trace_ids, trace_id_of, turns_json, turns_request
from tests.fixtures_turns import client_turn

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
ANSWERS = 4  # to each of many senders


def test_health_answers_while_it_decodes_20_megabytes_of_json(tmp_path: Path) -> None:
    turns = [client_turn(index, trace_id=f"{index + 1:032x}") for index in range(5000)]
    body = turns_json(turns)
    body = body + b" " * ((20 << 20) - 1000 - len(body))
    assert len(body) > 20_000_000

    async def test(url: str) -> list[str]:
        order: list[str] = []

        async def send() -> None:
            async with httpx.AsyncClient(base_url=url, timeout=120) as client:
                while (answer := await client.post("/v1/traces", content=body, headers=JSON)).status_code == 503:
                    order.append("sent back")  # by a machine that is too busy to decode it in time
            order.append(f"stored {answer.status_code}")

        async def ask() -> None:
            async with httpx.AsyncClient(base_url=url, timeout=120) as client:
                while not sending.done():
                    answers = [(await client.get(page)).status_code for page in ("/healthz", "/readyz")]
                    assert answers == [200, 200]
                    order.append("healthy")

        sending = asyncio.create_task(send())
        await ask()
        await sending
        return order

    with running_sidecar(tmp_path) as sidecar:
        order = asyncio.run(test(sidecar.http))
    assert "stored 200" in order
    assert order.index("healthy") == 0, "health was answered only after the request"
    assert order.count("healthy") > 1


@pytest.mark.nightly
def test_answers_to_128_senders_store_what_they_acknowledge(tmp_path: Path) -> None:
    """More than can be stored comes from 128 sides: each is stored or sent back, none waits for an exporter's end."""
    exporter_gives_up_s = 10.0

    async def sender(client: httpx.AsyncClient, number: int) -> None:
        index = 0
        for _ in range(ANSWERS):
            turns = [client_turn(i, trace_id=trace_id_of(index * 64 + i, number)) for i in range(64)]
            body = turns_request(turns).SerializeToString()
            sent_s = time.monotonic()
            answer = await client.post("/v1/traces", content=body, headers=PROTOBUF)
            answered_after_s.append(time.monotonic() - sent_s)
            codes.append(answer.status_code)
            if answer.status_code == 200:
                acknowledged.extend(turn.trace_id for turn in turns)
                index += 1
            else:
                await asyncio.sleep(int(answer.headers["retry-after"]))

    async def watch(client: httpx.AsyncClient) -> None:
        """Record how long the machine itself delays a request now and then: this one waits for no store."""
        while True:
            asked_s = time.monotonic()
            assert (await client.get("/healthz")).status_code == 200
            healthy_after_s.append(time.monotonic() - asked_s)
            await asyncio.sleep(0.05)

    async def flood(url: str) -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=BOUND_S, limits=limits) as client:
            watching = asyncio.create_task(watch(client))
            await asyncio.gather(*(sender(client, number) for number in range(128)))
            watching.cancel()

    acknowledged: list[str] = []
    codes: list[int] = []
    answered_after_s: list[float] = []
    healthy_after_s: list[float] = []
    with running_sidecar(tmp_path) as sidecar:
        # A process with a tenth of a processor simulates a machine that is too small.
        throttle = _Throttle(psutil.Process(sidecar.process.pid))
        asyncio.run(flood(sidecar.http))
        throttle.end()
        assert sidecar.terminate() == 0
    stored = stored_trace_ids(tmp_path)
    print({code: codes.count(code) for code in set(codes)}, len(stored))
    assert set(codes) == {200, 503}, "nobody was stored, or nobody was sent back"
    assert max(answered_after_s) < exporter_gives_up_s + max(healthy_after_s), "some waited until an exporter gives up"
    assert len(stored) == len(set(stored))
    assert set(acknowledged) <= set(stored)


class _Throttle:
    """Stops and continues a process so that it has a tenth of the time."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.01):
            self._process.suspend()
            self._over.wait(0.09)
            self._process.resume()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._process.resume()
