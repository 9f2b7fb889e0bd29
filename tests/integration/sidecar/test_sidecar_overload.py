"""A real sidecar with a large body to decode: it answers meanwhile."""

import asyncio
from pathlib import Path

import httpx

from tests.fixtures_sidecar import running_sidecar, turns_json
from tests.fixtures_turns import client_turn

JSON = {"content-type": "application/json"}


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
