"""The address: secrets of its query come from the environment, and each protocol has its own schemes."""

from urllib.parse import parse_qs, urlsplit

import pytest

from loadtest.errors import UsageError
from loadtest.protocols.address import public_target
from loadtest.scenario.access import filled_target
from loadtest.scenario.document import encode_settings
from loadtest.scenario.settings import SwarmSettings

SECRET = "k/e y+&=#é-4f9a77e2c1d0"
URL = "wss://agent.example/v1?agent_id=7&key=${AGENT_KEY}&again=${AGENT_KEY}"


def test_the_query_takes_values_from_the_environment() -> None:
    target = filled_target(URL, {"AGENT_KEY": f"{SECRET}\n"})
    parts = urlsplit(target)
    assert parse_qs(parts.query) == {"agent_id": ["7"], "key": [SECRET], "again": [SECRET]}
    assert target.isascii()
    assert not parts.fragment
    assert filled_target("ws://h/x?a=$1&b=%7B", {}) == "ws://h/x?a=$1&b=%7B"


def test_a_value_is_not_read_for_places_again() -> None:
    assert filled_target("ws://h/?a=${A}&b=${B}", {"A": "${B}", "B": "2"}) == "ws://h/?a=%24%7BB%7D&b=2"


@pytest.mark.parametrize(
    ("url", "lines"),
    [
        (
            "ws://h/?a=${A}&b=${B}&a=${A}",
            ["variable A, which the address", "variable B, which the address"],
        ),
        ("ws://user:${A}@h/", ["has ${…} before its query"]),
        ("ws://h/${A}?b=${}", ["has ${…} before its query", "without the name of an environment variable"]),
        ("ws://h/?b=${A", ["without the name of an environment variable"]),
        ("ws://h/?b=${A-B}", ["without the name of an environment variable"]),
    ],
)
def test_a_place_that_cannot_be_filled(url: str, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("A", "B"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError) as caught:
        filled_target(url, {"A": " "})
    reported = str(caught.value).splitlines()
    assert len(reported) == len(lines)
    assert all(part in line for part, line in zip(lines, reported, strict=True))
    faults = SwarmSettings(host=url).faults()
    assert [fault for fault in faults if "${…}" in fault or "environment variable" in fault] == reported


def test_process_without_calls_needs_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_KEY", raising=False)
    settings = SwarmSettings(host=URL)
    assert settings.faults(calls=False) == []
    assert settings.faults() == ["the environment variable AGENT_KEY, which the address names, is not set; set it"]


def test_a_value_is_neither_stored_nor_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KEY", SECRET)
    settings = SwarmSettings(host=URL)
    assert settings.faults() == []
    assert SECRET in parse_qs(urlsplit(settings.target_url).query)["key"]
    for shown in (encode_settings(settings), repr(settings), public_target(settings.target_url)):
        assert "4f9a77e2" not in shown
    echo = settings.redactor.text(f"no session at {settings.target_url}: bad key {SECRET}")
    assert "4f9a77e2" not in echo
    assert "no session at wss://agent.example/v1?agent_id=7&key=[hidden]" in echo


@pytest.mark.parametrize(
    ("protocol", "url"),
    [
        ("openai-realtime", "wss://127.0.0.1:9/v1/realtime"),
        ("http-cascade", "http://127.0.0.1:4000/v1"),
        ("asr", "https://services.example/v1"),
        ("wyoming", "tcp://127.0.0.1:10300"),
        ("livekit-console", "tcp-listen://127.0.0.1:7777"),
        ("livekit-console", "tcp-listen://localhost:7777"),
        ("livekit-console", "tcp-listen://[::1]:7777"),
    ],
)
def test_every_protocol_takes_addresses_of_its_own_transport(protocol: str, url: str) -> None:
    assert SwarmSettings(host=url, protocol=protocol).faults() == []


@pytest.mark.parametrize(
    ("protocol", "url", "sentence"),
    [
        ("openai-realtime", "http://h/v1", "'http://h/v1' is not a WebSocket address"),
        ("http-cascade", "ws://h/v1", "'ws://h/v1' is not an HTTP address"),
        ("wyoming", "ws://h/v1", "'ws://h/v1' is not a TCP address"),
        ("wyoming", "tcp://h", "has no valid port"),
        ("wyoming", "", "the target is missing: give a TCP address such as tcp://127.0.0.1:10300"),
        ("wyoming", "tcp-listen://127.0.0.1:7777", "is not a TCP address"),
        ("livekit-console", "tcp://127.0.0.1:7777", "is not an address to listen on"),
        ("livekit-console", "tcp-listen://127.0.0.1", "has no valid port"),
        ("livekit-console", "tcp-listen://0.0.0.0:7777", "is not an address of this machine alone"),
        ("livekit-console", "tcp-listen://[::]:7777", "is not an address of this machine alone"),
        ("livekit-console", "tcp-listen://agent.example:7777", "is not an address of this machine alone"),
    ],
)
def test_addresses_of_another_transport_are_refused(protocol: str, url: str, sentence: str) -> None:
    (fault,) = SwarmSettings(host=url, protocol=protocol).faults()
    assert sentence in fault


@pytest.mark.parametrize(
    ("protocol", "url", "sentence"),
    [
        ("asr", "http://h/v1", "--sni: not supported with http://, which is not encrypted; use https://"),
        ("wyoming", "tcp://h:1", "--sni: not supported with tcp://, which is not encrypted; use tls://"),
    ],
)
def test_tls_flags_are_refused_for_unencrypted_target(protocol: str, url: str, sentence: str) -> None:
    assert SwarmSettings(host=url, protocol=protocol, sni="a.test").faults() == [sentence]
