"""By which names the dashboard answers requests, and where its first page is."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from streamlit import config

from dashboard.web_server import HostGuard


def requested(app: HostGuard, *requests: tuple[str, Mapping[str, str]]) -> list[httpx.Response]:
    """The answers to requests, one after the other."""

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8501") as client:
            return [await client.get(path, headers=dict(headers)) for path, headers in requests]

    return asyncio.run(ask())


@pytest.mark.parametrize(("query", "to"), [("", "/"), ("?run=a&cohort=B", "/?run=a&cohort=B")])
def test_the_first_page_is_found_by_its_name(query: str, to: str) -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        pytest.fail("the request is not answered by Streamlit")

    (answer,) = requested(HostGuard(app), (f"/now{query}", {}))
    assert answer.status_code == 307
    assert answer.headers["location"] == to


HERE, PUBLIC, FOREIGN = "127.0.0.1:8501", "dash.example", "attacker.example"


@pytest.mark.parametrize(
    ("host", "origin", "named", "answered"),
    [
        (HERE, None, True, True),
        ("localhost:8501", "http://localhost:8501", True, True),
        ("[::1]:8501", "http://[::1]:8501", True, True),
        (PUBLIC, f"https://{PUBLIC}", True, True),
        (f"{PUBLIC}:8443", f"https://{PUBLIC}:8443", True, True),
        (HERE, f"https://{PUBLIC}", True, True),  # a proxy that passes on the address behind it as Host
        (FOREIGN, f"http://{FOREIGN}", True, False),
        (f"{FOREIGN}:8501", None, True, False),
        (f"{PUBLIC}.{FOREIGN}", None, True, False),
        (HERE, f"http://{FOREIGN}", True, False),
        (PUBLIC, f"https://{FOREIGN}", True, False),
        (HERE, "null", True, False),
        (HERE, "http://[", True, False),
        ("", None, True, False),
        # Listening for the network without names: any, for a page of the same address.
        (PUBLIC, f"https://{PUBLIC}", False, True),
        (PUBLIC, f"https://{FOREIGN}", False, False),
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_requests_are_answered_by_the_names_of_the_dashboard_alone(
    kind: str, host: str, origin: str | None, named: bool, answered: bool
) -> None:
    config.set_option("server.allowedHosts", ["127.0.0.1", "localhost", "::1", PUBLIC] if named else [])
    sent, passed_on = list[Any](), list[str]()

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        passed_on.append(scope["path"])

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    given = {"host": host} | ({} if origin is None else {"origin": origin})
    headers = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {"type": kind, "method": "POST", "path": "/_stcore/stream", "query_string": b"", "headers": headers}
    try:
        asyncio.run(HostGuard(app)(scope, receive, send))
    finally:
        config.set_option("server.allowedHosts", [])
    assert passed_on == (["/_stcore/stream"] if answered else [])
    if not answered and kind == "http":
        assert sent[0]["status"] == 403
        assert b"--public-host NAME" in sent[1]["body"]
    elif not answered:
        assert [message["type"] for message in sent] == ["websocket.close"]
