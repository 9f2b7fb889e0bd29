"""Start of the server: where it listens, what it refuses, to which host names it answers."""

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from streamlit import config
from typer.testing import CliRunner

from dashboard.__main__ import app
from dashboard.launch import LaunchOptions, public_host_name, streamlit_options, url_of
from dashboard.web_server import HostGuard, claimed_socket
from telemetry.model.errors import ConfigError

HERE = LaunchOptions(store="store")


def test_port_0_takes_a_free_one_and_a_taken_one_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with claimed_socket("127.0.0.1", 0) as free:
            assert free.getsockname()[1] not in (0, port)
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port} .*--port 0"):
            claimed_socket("127.0.0.1", port)
        with pytest.raises(ConfigError, match=f"cannot listen on localhost:{port} "):
            claimed_socket("localhost", port)
        with pytest.raises(ConfigError, match=f"cannot listen on 0.0.0.0:{port} "):
            claimed_socket("0.0.0.0", port)
    with claimed_socket("::1", 0) as six, pytest.raises(ConfigError, match=r"cannot listen on \[::1\]:\d+ "):
        claimed_socket("::1", six.getsockname()[1])


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 80])
def test_address_not_on_this_machine_is_rejected(host: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on {host}:0 "):
        claimed_socket(host, 0)


def test_streamlit_is_configured_to_keep_to_itself() -> None:
    settings = streamlit_options(HERE, 8501)
    assert settings["browser.gatherUsageStats"] is False
    assert settings["server.showEmailPrompt"] is False
    assert settings["server.fileWatcherType"] == "none"
    assert settings["logger.hideWelcomeMessage"] is True  # the greeting looks up the machine's address outside
    assert settings["server.address"] == "127.0.0.1"
    assert settings["server.allowedHosts"] == ["127.0.0.1", "localhost", "::1"]
    assert "server.headless" not in settings
    assert streamlit_options(LaunchOptions(store="store", headless=True), 1)["server.headless"] is True
    wide = streamlit_options(LaunchOptions(store="store", host="0.0.0.0"), 8501)
    assert "server.allowedHosts" not in wide


@pytest.mark.parametrize(
    ("host", "public", "allowed"),
    [
        ("::1", (), {"::1", "127.0.0.1", "localhost"}),
        ("127.0.0.2", (), {"127.0.0.2", "::1", "127.0.0.1", "localhost"}),
        ("127.0.0.1", ("dash.example",), {"dash.example", "::1", "127.0.0.1", "localhost"}),
        ("0.0.0.0", ("dash.example",), {"dash.example", "::1", "127.0.0.1", "localhost"}),
        ("192.0.2.5", ("dash.example",), {"dash.example", "192.0.2.5", "::1", "127.0.0.1", "localhost"}),
    ],
)
def test_the_names_that_the_page_answers_to(host: str, public: tuple[str, ...], allowed: set[str]) -> None:
    settings = streamlit_options(LaunchOptions(host=host, public_hosts=public), 8501)
    assert set(cast("list[str]", settings["server.allowedHosts"])) == allowed
    assert settings["server.corsAllowedOrigins"] == [f"https://{name}" for name in public]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("dash.example", "dash.example"),
        ("Dash.Example.", "dash.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_a_public_host_is_kept_as_browsers_send_it(given: str, name: str) -> None:
    assert public_host_name(given) == name


@pytest.mark.parametrize(
    "given",
    [
        "",
        "https://dash.example",
        "dash.example:8501",
        "dash.example/path",
        "*",
        "*.example",
        "a@b",
        "[x",
        "a b",
        "a\nb",
    ],
)
def test_a_public_host_that_is_no_name_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"--public-host: .* is not a host name; give the name alone"):
        public_host_name(given)


def test_every_setting_is_one_that_streamlit_knows() -> None:
    known = config.get_config_options()
    assert set(streamlit_options(HERE, 8501)) <= set(known)


def test_the_address_is_one_that_this_machine_can_open() -> None:
    assert url_of("127.0.0.1", 1) == "http://127.0.0.1:1"
    assert url_of("0.0.0.0", 1) == "http://127.0.0.1:1"
    assert url_of("::1", 1) == "http://[::1]:1"
    assert url_of("::", 1) == "http://[::1]:1"
    assert url_of("192.0.2.5", 1) == "http://192.0.2.5:1", "it listens there alone"


def test_bad_objectives_end_before_the_server_starts(tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("kind: nonsense\n")
    result = CliRunner().invoke(app, ["--store", str(tmp_path), "--slo", str(slo), "--port", "0", "--headless"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"voiceprobe: {slo}: "), "as every command does"
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("address", ["127.0.0.1:8089", "javascript:alert(1)", "http://", "http://[", ""])
def test_invalid_locust_link_ends_command_before_server_starts(tmp_path: Path, address: str) -> None:
    result = CliRunner().invoke(app, ["--store", str(tmp_path), "--port", "0", "--headless", "--locust", address])
    assert result.exit_code == 2
    assert f"--locust: {address!r} is not the address of a page; write it as http://HOST:PORT" in result.stderr


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "voiceprobe dashboard --store" in result.stdout


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


LOCAL, PUBLIC, FOREIGN = "127.0.0.1:8501", "dash.example", "attacker.example"


@pytest.mark.parametrize(
    ("host", "origin", "named", "answered"),
    [
        (LOCAL, None, True, True),
        ("localhost:8501", "http://localhost:8501", True, True),
        ("[::1]:8501", "http://[::1]:8501", True, True),
        (PUBLIC, f"https://{PUBLIC}", True, True),
        (f"{PUBLIC}:8443", f"https://{PUBLIC}:8443", True, True),
        (LOCAL, f"https://{PUBLIC}", True, True),  # a proxy that passes on the address behind it as Host
        (FOREIGN, f"http://{FOREIGN}", True, False),
        (f"{FOREIGN}:8501", None, True, False),
        (f"{PUBLIC}.{FOREIGN}", None, True, False),
        (LOCAL, f"http://{FOREIGN}", True, False),
        (PUBLIC, f"https://{FOREIGN}", True, False),
        (LOCAL, "null", True, False),
        (LOCAL, "http://[", True, False),
        ("", None, True, False),
        # Listening for the network without names: any, for a page of the same address.
        (PUBLIC, f"https://{PUBLIC}", False, True),
        (PUBLIC, f"https://{FOREIGN}", False, False),
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_dashboard_answers_only_requests_to_its_own_names(
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
