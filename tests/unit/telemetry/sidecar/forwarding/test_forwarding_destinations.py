"""What a `[[forward]]` table may say, and the sentence for each fault."""

import os
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.model.errors import ConfigError
from telemetry.sidecar.forwarding.destinations import Destination, Header, destinations_from, refuse_own_address

KEY = "ab" * 32
PLAIN: dict[str, Any] = {"name": "tempo", "url": "http://127.0.0.1:4318", "text": "redact"}
KEPT: dict[str, Any] = {**PLAIN, "text": "keep"}


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
    assert destination.max_age_ns == 24 * 3600 * 10**9
    assert destination.max_bytes == 1024 << 20


def test_all_that_a_destination_can_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUTHORIZATION", "Basic abc")
    secret = private(tmp_path / "secret", "dd-secret\n")
    key = private(tmp_path / "key", KEY)
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
        key_file = "{key}"
        max_age = "2h"
        max_mib = 100
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
        key_file=key,
        max_age_ns=2 * 3600 * 10**9,
        max_bytes=100 << 20,
        compression="none",
        timeout_s=5.0,
        ca_file=f"{tmp_path}/ca.pem",
        client_cert_file=f"{tmp_path}/client.pem",
        client_key_file=f"{tmp_path}/client.key",
    )
    assert [header.read() for header in destination.headers] == ["4", "Basic abc", "dd-secret"]
    assert destination.read_key() == bytes.fromhex(KEY)
    # It crosses processes in their arguments.
    encoded = msgspec.json.encode(destination)
    assert b"dd-secret" not in encoded
    assert b"Basic abc" not in encoded
    assert KEY.encode() not in encoded
    assert msgspec.json.decode(encoded, type=Destination) == destination


def test_what_happens_to_text_has_no_default() -> None:
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
        ({"key_env": "NO_SUCH"}, 'key_env: belongs to text = "keep"'),
        ({"in_memory": "yes"}, "in_memory: must be true or false"),
        ({"max_age": "soon"}, "max_age: 'soon' is not a duration"),
        ({"max_age": 0}, "max_age: must be longer than 0 s"),
        ({"max_mib": 1}, "max_mib: must be a whole number of MiB, at least 16"),
        ({"timeout": "1h"}, "timeout: must be at most 2m, got 1h"),
        ({"compression": "zstd"}, "compression: must be gzip or none"),
        ({"ca_file": "/no/such/file"}, "ca_file: /no/such/file is not a file"),
        ({"client_cert_file": __file__}, "client_cert_file: client_cert_file and client_key_file need each other"),
        ({"text_": "keep"}, "text_: is not a setting of a destination"),
    ],
)
def test_each_fault_has_its_sentence(change: dict[str, Any], fault: str) -> None:
    found = faults_of({**PLAIN, **change})
    assert any(fault in each for each in found), found


def test_every_fault_of_every_table_is_found_at_once() -> None:
    found = faults_of({"name": "a", "url": "no"}, {"url": "http://127.0.0.1:1", "text": "keep", "max_mib": -1})
    assert [fault.split(": ")[:2] for fault in found] == [
        ["[[forward]] 1 (a)", "text"],
        ["[[forward]] 1 (a)", "url"],
        ["[[forward]] 2", "name"],
        ["[[forward]] 2", "text"],
        ["[[forward]] 2", "max_mib"],
    ]


def test_two_destinations_never_share_a_name() -> None:
    assert "another destination's name" in faults_of(PLAIN, PLAIN)[0]


@pytest.mark.parametrize("given", [[], ["key_env", "in_memory"], ["key_env", "key_file"]])
def test_kept_text_is_encrypted_or_in_memory(given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    values = {"key_env": "TEST_KEY", "key_file": private(tmp_path / "key", KEY), "in_memory": True}
    (fault,) = faults_of({**KEPT, **{name: values[name] for name in given}})
    assert '"keep" requires exactly one of key_file, key_env' in fault


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    private(path, KEY)
    path.chmod(0o644)
    (fault,) = faults_of({**KEPT, "key_file": str(path)})
    assert f"{path} is open to other users (mode 0644); close it: chmod 600 {path}" in fault


def test_a_key_that_a_group_may_read_is_taken_as_secrets_of_kubernetes_come(tmp_path: Path) -> None:
    path = tmp_path / "key"
    private(path, KEY)
    path.chmod(0o440)
    (destination,) = destinations_from([{**KEPT, "key_file": str(path)}], "sidecar.toml")
    assert destination.read_key().hex() == KEY


def test_a_pipe_for_a_key_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "key"
    os.mkfifo(path, 0o600)
    (fault,) = faults_of({**KEPT, "key_file": str(path)})
    assert f"{path} is not a file; give one" in fault


@pytest.mark.parametrize("content", [b"", b"short", b"ab" * 31, b"g" * 64, b"x" * 100_000])
def test_what_is_not_a_key_is_refused_and_not_shown(content: bytes, tmp_path: Path) -> None:
    (fault,) = faults_of({**KEPT, "key_file": private(tmp_path / "key", content)})
    assert "holds no" in fault
    assert not content or content.decode() not in fault


@pytest.mark.parametrize(
    "content",
    [bytes(range(32)), bytes(range(32)).hex().encode() + b"\n", b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="],
)
def test_a_key_is_raw_hexadecimal_or_base64(content: bytes, tmp_path: Path) -> None:
    (destination,) = destinations_from([{**KEPT, "key_file": private(tmp_path / "key", content)}], "")
    assert destination.read_key() == bytes(range(32))


def test_a_secret_with_a_line_break_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AUTHORIZATION", "hush\r\nx: y")
    (fault,) = faults_of({**PLAIN, "headers_env": {"authorization": "TEST_AUTHORIZATION"}})
    assert "TEST_AUTHORIZATION holds no value for a header" in fault
    assert "hush" not in fault


@pytest.mark.parametrize("change", [{"text": "keep", "in_memory": True}, {"headers_env": {"x": "HOME"}}])
def test_texts_and_secrets_cross_a_network_encrypted_or_by_wish(change: dict[str, Any]) -> None:
    table = {**PLAIN, "url": "http://collector.example:4318", **change}
    (fault,) = faults_of(table)
    assert "would cross the network unencrypted" in fault
    assert len(destinations_from([{**table, "insecure": True}], "")) == 1
    assert len(destinations_from([{**table, "url": "https://collector.example:4318"}], "")) == 1


def test_memory_alone_has_a_smaller_limit() -> None:
    (destination,) = destinations_from([{**KEPT, "in_memory": True}], "")
    assert destination.max_bytes == 64 << 20


@pytest.mark.parametrize("url", ["http://127.0.0.1:4318", "http://localhost:4318/base", "https://[::1]:4318"])
def test_a_sidecar_does_not_forward_to_itself(url: str) -> None:
    destinations = [Destination("other", "http://127.0.0.1:4319", "redact"), Destination("own", url, "redact")]
    with pytest.raises(ConfigError, match=r"own: url: .* is this sidecar's own address") as caught:
        refuse_own_address(destinations, 4318)
    assert len(caught.value.faults) == 1
    refuse_own_address(destinations[:1], 4318)
    refuse_own_address([Destination("far", "http://far.example:4318", "redact")], 4318)
