"""Values of a `[[forward]]` table, and the sentence for each fault."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.model.errors import ConfigError
from telemetry.sidecar.forwarding.destinations import Destination, Header, destinations_from, refuse_own_address

PLAIN: dict[str, Any] = {"name": "tempo", "url": "http://127.0.0.1:4318", "text": "redact"}


def faults_of(*tables: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        destinations_from(tables, "sidecar.toml")
    assert str(caught.value).startswith("sidecar.toml: ")
    return caught.value.faults


def private(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o600)
    return str(path)


def test_the_least_that_a_destination_says() -> None:
    (destination,) = destinations_from([PLAIN], "sidecar.toml")
    assert destination == Destination("tempo", "http://127.0.0.1:4318", "redact")
    assert (destination.queue_bytes, destination.queue_items) == (64 << 20, 200_000)
    assert destination.max_age_s == 24 * 3600


def test_all_that_a_destination_can_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUTHORIZATION", "Basic abc")
    secret = private(tmp_path / "secret", "dd-secret\n")
    for name in ("ca.pem", "client.pem", "client.key"):
        private(tmp_path / name, "pem")
    tables = tomllib.loads(f"""
        [[forward]]
        name = "langfuse"
        url = "https://langfuse.example/api/public/otel/"
        protocol = "http/protobuf"
        text = "keep"
        signals = ["traces"]
        headers = {{ x-version = "4" }}
        headers_env = {{ authorization = "TEST_AUTHORIZATION" }}
        headers_file = {{ dd-api-key = "{secret}" }}
        max_age = "2h"
        queue_mib = 100
        queue_items = 5000
        compression = "none"
        timeout = 5
        ca_file = "{tmp_path}/ca.pem"
        client_cert_file = "{tmp_path}/client.pem"
        client_key_file = "{tmp_path}/client.key"
    """)
    (destination,) = destinations_from(tables["forward"], "sidecar.toml")
    assert destination == Destination(
        name="langfuse",
        url="https://langfuse.example/api/public/otel",
        text="keep",
        signals=("traces",),
        headers=(
            Header("x-version", "4"),
            Header("authorization", env="TEST_AUTHORIZATION"),
            Header("dd-api-key", file=secret),
        ),
        max_age_s=2 * 3600.0,
        queue_bytes=100 << 20,
        queue_items=5000,
        compression="none",
        timeout_s=5.0,
        ca_file=f"{tmp_path}/ca.pem",
        client_cert_file=f"{tmp_path}/client.pem",
        client_key_file=f"{tmp_path}/client.key",
    )
    assert [header.read() for header in destination.headers] == ["4", "Basic abc", "dd-secret"]
    # It crosses processes in their arguments.
    encoded = msgspec.json.encode(destination)
    assert b"dd-secret" not in encoded
    assert b"Basic abc" not in encoded
    assert msgspec.json.decode(encoded, type=Destination) == destination


def test_text_setting_has_no_default() -> None:
    (fault,) = faults_of({"name": "tempo", "url": "http://127.0.0.1:4318"})
    assert fault.startswith("[[forward]] 1 (tempo): text: is missing")
    assert "there is no default" in fault


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"name": ""}, "name: must be a text"),
        ({"name": "../up"}, "name: must be at most 32 of"),
        ({"name": "Tempo"}, "name: must be at most 32 of"),
        ({"url": "ftp://127.0.0.1"}, "url: is not a URL"),
        ({"url": "https://"}, "url: is not a URL"),
        ({"url": "https://a:99999"}, "url: is not a URL"),
        ({"url": "https://a\n.example"}, "url: is not a URL"),
        ({"url": "https://user:pass@a.example"}, "url: holds a user or password"),
        ({"url": "https://a.example?key=1"}, "url: must end with its path"),
        ({"url": "https://a.example/v1/traces"}, "url: names one signal"),
        ({"protocol": "grpc"}, "protocol: must be http/protobuf"),
        ({"text": "drop"}, "text: must be redact or keep"),
        ({"signals": []}, "signals: must be a list of traces and metrics"),
        ({"signals": ["logs"]}, "signals: must be a list of traces and metrics"),
        ({"headers": {"authorization": "Bearer x"}}, "headers: the value of authorization is a secret"),
        ({"headers": {"X-Api-Key": "x"}}, "headers: the value of X-Api-Key is a secret"),
        ({"headers": {"x": "a\r\nb: c"}}, "headers: the value of x holds no value for a header"),
        ({"headers": {"a b": "c"}}, "headers: 'a b' cannot be set"),
        ({"headers": {"Content-Length": "3"}}, "headers: 'Content-Length' cannot be set"),
        ({"headers": {"x": "1"}, "headers_env": {"X": "NO_SUCH"}}, "headers_env: X is given twice"),
        (
            {"headers_env": {"x": "NO_SUCH_VARIABLE"}},
            "headers_env: the environment variable NO_SUCH_VARIABLE is missing",
        ),
        ({"headers_file": {"x": "/no/such/file"}}, "headers_file: /no/such/file cannot be read"),
        ({"insecure": "yes", "url": "http://far.example"}, "insecure: must be true or false"),
        ({"max_age": "soon"}, "max_age: 'soon' is not a duration"),
        ({"max_age": 0}, "max_age: must be longer than 0 s"),
        ({"queue_mib": 0}, "queue_mib: must be a whole number from 1 to 65,536"),
        ({"queue_mib": 1.5}, "queue_mib: must be a whole number from 1 to 65,536"),
        ({"queue_mib": True}, "queue_mib: must be a whole number from 1 to 65,536"),
        ({"queue_items": 0}, "queue_items: must be a whole number of at least 1"),
        ({"queue_items": "many"}, "queue_items: must be a whole number of at least 1"),
        ({"headers": ["a"]}, "headers: must be a table of header names and texts"),
        ({"headers_env": {"x": ""}}, "headers_env: must be a table of header names and texts"),
        ({"timeout": "1h"}, "timeout: must be at most 2m, got 1h"),
        ({"compression": "zstd"}, "compression: must be gzip or none"),
        ({"ca_file": "/no/such/file"}, "ca_file: /no/such/file is not a file"),
        ({"client_cert_file": __file__}, "client_cert_file: client_cert_file and client_key_file need each other"),
        ({"text_": "keep"}, "text_: is not a setting of a destination"),
    ],
)
def test_each_fault_has_its_sentence(change: dict[str, Any], fault: str) -> None:
    faults = faults_of({**PLAIN, **change})
    assert any(fault in line for line in faults), faults


def test_every_fault_of_every_table_is_found_at_once() -> None:
    faults = faults_of({"name": "a", "url": "no"}, {"url": "http://127.0.0.1:1", "text": "keep", "queue_mib": -1})
    assert [fault.split(": ")[:2] for fault in faults] == [
        ["[[forward]] 1 (a)", "text"],
        ["[[forward]] 1 (a)", "url"],
        ["[[forward]] 2", "name"],
        ["[[forward]] 2", "queue_mib"],
    ]


def test_two_destinations_never_share_a_name() -> None:
    assert "another destination's name" in faults_of(PLAIN, PLAIN)[0]


@pytest.mark.parametrize("text", ["redact", "keep"])
@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("key_file", "forward.key", "there is no encrypted queue on disk any more"),
        ("key_env", "FORWARD_KEY", "there is no encrypted queue on disk any more"),
        ("in_memory", True, "every queue is in memory now"),
        ("in_memory", False, "every queue is in memory now"),
        ("max_mib", 1024, "limited the queue on disk; give queue_mib in its place (64 by default)"),
    ],
)
def test_disk_queue_settings_are_refused_with_the_new_way(text: str, key: str, value: object, sentence: str) -> None:
    (fault,) = faults_of({**PLAIN, "text": text, key: value})
    assert fault.startswith(f"[[forward]] 1 (tempo): {key}: {sentence}")
    assert "requests wait in memory only, within queue_mib and queue_items" in fault
    assert "put an OpenTelemetry Collector in front" in fault


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    private(path, "hush")
    path.chmod(0o644)
    (fault,) = faults_of({**PLAIN, "headers_file": {"x": str(path)}})
    assert f"headers_file: {path} is open to other users (mode 0644); close it: chmod 600 {path}" in fault


def test_a_secret_with_a_line_break_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUTHORIZATION", "hush\r\nx: y")
    (fault,) = faults_of({**PLAIN, "headers_env": {"authorization": "TEST_AUTHORIZATION"}})
    assert "TEST_AUTHORIZATION holds no value for a header" in fault
    assert "hush" not in fault


@pytest.mark.parametrize("change", [{"text": "keep"}, {"headers_env": {"x": "HOME"}}])
def test_texts_and_secrets_cross_a_network_encrypted_or_by_wish(change: dict[str, Any]) -> None:
    table = {**PLAIN, "url": "http://collector.example:4318", **change}
    (fault,) = faults_of(table)
    assert "would cross the network unencrypted" in fault
    assert len(destinations_from([{**table, "insecure": True}], "")) == 1
    assert len(destinations_from([{**table, "url": "https://collector.example:4318"}], "")) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:4318", "http://localhost:4318/base", "https://[::1]:4318"])
def test_a_sidecar_does_not_forward_to_itself(url: str) -> None:
    destinations = [Destination("other", "http://127.0.0.1:4319", "redact"), Destination("own", url, "redact")]
    with pytest.raises(ConfigError, match=r"own: url: .* is this sidecar's own address") as caught:
        refuse_own_address(destinations, 4318)
    assert len(caught.value.faults) == 1
    refuse_own_address(destinations[:1], 4318)
    refuse_own_address([Destination("far", "http://far.example:4318", "redact")], 4318)
