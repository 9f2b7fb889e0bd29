"""Headers from the environment, and the secrets of an address."""

import base64

import pytest

from loadtest.errors import UsageError
from loadtest.scenario.access import headers_from_environment, secrets_of_url
from loadtest.scenario.settings import SwarmSettings

SECRET = "sk-4f9a77e2c1d0"
GOOD = "wss://127.0.0.1:9/v1/realtime"


def test_values_come_from_the_variables_that_are_named() -> None:
    environment = {"API_KEY": f"{SECRET}\n", "TENANT": "acme"}
    headers = headers_from_environment(["X-Api-Key=API_KEY", "X-Tenant=TENANT"], None, environment)
    assert headers == (("X-Api-Key", SECRET), ("X-Tenant", "acme"))


@pytest.mark.parametrize(
    ("spec", "output"),
    [
        ("Host=API_KEY", "the header 'Host' belongs to the WebSocket handshake; leave it out"),
        ("upgrade=API_KEY", "belongs to the WebSocket handshake"),
        ("Connection=API_KEY", "belongs to the WebSocket handshake"),
        ("Sec-WebSocket-Protocol=API_KEY", "belongs to the WebSocket handshake"),
        ("X Key=API_KEY", "'X Key' is not a header name"),
        ("traceparent=API_KEY", "the callers set this header themselves"),
        ("Authorization=API_KEY", "given twice (one comes from VOICEPROBE_TOKEN)"),
        ("X-Key=BROKEN", "contains characters that a header cannot carry"),
        ("X-Key=NOT_THERE", "the environment variable NOT_THERE is not set"),
        ("X-Key=EMPTY", "the environment variable EMPTY is not set"),
        ("X-Key", "give NAME=VARIABLE"),
        ("=API_KEY", "give NAME=VARIABLE"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused(spec: str, output: str) -> None:
    environment = {"API_KEY": SECRET, "BROKEN": f"{SECRET}\r\nX-Injected: 1", "EMPTY": " "}
    with pytest.raises(UsageError) as caught:
        headers_from_environment([spec], "token", environment)
    assert output in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_value_given_in_place_of_a_variable_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        headers_from_environment([f"X-Key={SECRET}", "X-Key=api_key_lower"], None, {})
    assert "sk-" not in str(caught.value)
    assert str(caught.value).count("that it names is not set") == 2


def test_all_faults_of_getting_in_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEPROBE_TOKEN", "two\nlines")
    faults = SwarmSettings(host=GOOD, header=("Host=A", "X-Key=B"), ca_file="no.pem", client_key="no.key").faults()
    assert len(faults) == 5, faults


def test_flags_for_wss_are_refused_where_nothing_is_secured() -> None:
    (fault,) = SwarmSettings(host="ws://127.0.0.1:9/", sni="a.test").faults()
    assert fault == "--sni: not supported with ws://, which is not encrypted; use wss://"


@pytest.mark.parametrize(
    "host", ["wss://user:hunter22@h:99999/x", "wss://user:hunter22@[bad/x", "ftp://user:hunter22@h/", "user:hunter22@h"]
)
def test_unusable_address_is_refused_without_its_password(host: str) -> None:
    settings = SwarmSettings(host=host)
    assert len(settings.faults()) == 1
    assert "hunter22" not in settings.faults()[0]
    assert "hunter22" not in repr(settings)


def test_secrets_of_address_are_distinguished_from_parameters() -> None:
    secrets = secrets_of_url("wss://me:p%40ss@h/x?model=gpt-realtime&key=abc%2Fdef&debug=1")
    assert {"me", "p%40ss", "p@ss", "abc/def", "abc%2Fdef", base64.b64encode(b"me:p@ss").decode()} <= set(secrets)
    assert not {"gpt-realtime", "1"} & set(secrets)
