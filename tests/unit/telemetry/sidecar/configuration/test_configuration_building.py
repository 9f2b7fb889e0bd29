"""The options that settings make, and settings that contradict each other."""

import os
from pathlib import Path

import pytest

from telemetry.model.addresses import TOKEN_BYTES_MAX
from telemetry.model.errors import ConfigError
from telemetry.sidecar.configuration import TABLES, options_of, read_configuration


def _faults(flags: dict[str, object], variables: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        options_of(read_configuration(flags, variables or {}, TABLES))
    return refused.value.faults


def _secret(file: Path, content: str, mode: int = 0o600) -> str:
    file.write_text(content)
    file.chmod(mode)
    return str(file)


def test_settings_become_options(tmp_path: Path) -> None:
    token = _secret(tmp_path / "token", " s3cret\n", 0o440)
    given: dict[str, object] = {"store": "data", "host": "::", "token_file": token, "keep_gib": "0.5", "slo": "a.yaml"}
    options = options_of(read_configuration({**given, "body_memory": "64", "idle_timeout": "3"}, {}))
    assert (options.store, options.host, options.token, options.slo) == (Path("data"), "::", "s3cret", Path("a.yaml"))
    assert (options.keep.age_ns, options.keep.size_bytes) == (None, 1 << 29)
    assert (options.limits.bodies_bytes, options.limits.idle_s) == (64 << 20, 3.0)
    assert "s3cret" not in repr(options)


def test_remote_listening_requires_token_or_client_certificates() -> None:
    (fault,) = _faults({"store": "data", "host": "0.0.0.0"})
    assert fault.startswith("--host: 0.0.0.0 is reachable from other machines; add a token with --token-file")
    assert options_of(read_configuration({"store": "data", "host": "::1"}, {})).host == "::1"
    variables = {"VOICEPROBE_SIDECAR_TOKEN": "s3cret"}
    assert options_of(read_configuration({"store": "data", "host": "0.0.0.0"}, variables)).token == "s3cret"


def test_a_token_that_cannot_be_used_leaves_nothing_open(tmp_path: Path) -> None:
    faults = _faults({"host": "0.0.0.0", "token_file": _secret(tmp_path / "token", "\n"), "http_port": "x"})
    assert [fault.partition(" ")[0] for fault in faults] == ["--http-port", "--token-file", "no"]


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602, 0o620, 0o601])
def test_a_token_that_others_could_read_or_replace_is_refused(tmp_path: Path, mode: int) -> None:
    token = _secret(tmp_path / "token", "s3cret", mode)
    (fault,) = _faults({"store": "data", "token_file": token})
    assert fault == f"--token-file: {token} is open to other users (mode {mode:04o}); close it: chmod 600 {token}"


def test_a_token_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = _secret(tmp_path / "token", "s3cret")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        assert options_of(read_configuration({"store": "data", "token_file": token}, {})).token == "s3cret"
    else:
        (fault,) = _faults({"store": "data", "token_file": token})
        assert "belongs to another user" in fault


@pytest.mark.parametrize("content", ["", "two words", "two\nlines", "é", "x" * (TOKEN_BYTES_MAX + 1)])
def test_token_that_no_header_can_carry_is_refused_and_hidden(tmp_path: Path, content: str) -> None:
    (fault,) = _faults({"store": "data", "token_file": _secret(tmp_path / "token", content)})
    assert "make one with: openssl rand -hex 32" in fault
    assert not content or content not in fault


def test_missing_token_file_is_refused(tmp_path: Path) -> None:
    assert "is not a file" in _faults({"store": "data", "token_file": str(tmp_path)})[0]
    assert "No such file" in _faults({"store": "data", "token_file": str(tmp_path / "none")})[0]


@pytest.mark.parametrize("given", [("tls_cert",), ("tls_key",), ("tls_client_ca",), ("tls_cert", "tls_client_ca")])
def test_half_of_tls_is_a_fault(given: tuple[str, ...]) -> None:
    (fault,) = _faults({"store": "data", **dict.fromkeys(given, "a.pem")})
    assert fault == f"--{given[0].replace('_', '-')}: TLS requires both tls_cert and tls_key; give the two"


def test_model_servers_to_read_come_from_tables_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.toml"
    file.write_text('store = "data"\n[[scrape]]\nname = "vllm"\nurl = "http://127.0.0.1:8000/metrics"\n')
    options = options_of(read_configuration({"config": str(file)}, {}, TABLES))
    assert [(target.name, target.interval_s) for target in options.scrape] == [("vllm", 10.0)]


def test_faults_of_tables_are_reported_with_the_others(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.toml"
    file.write_text('hots = "x"\n[[scrape]]\nname = "vllm"\nurl = "ftp://x"\n')
    with pytest.raises(ConfigError) as refused:
        options_of(read_configuration({"config": str(file)}, {}, TABLES))
    output = "\n".join(refused.value.faults)
    for part in ("'hots' is not a known key", f"{file}: [[scrape]] 1: url: 'ftp://x'", "no store is named"):
        assert part in output, part
    file.write_text('store = "data"\nscrape = "http://127.0.0.1:8000/metrics"\n')
    with pytest.raises(ConfigError, match=r"scrape: tables are expected; write \[\[scrape\]\] before each"):
        options_of(read_configuration({"config": str(file)}, {}, TABLES))


def test_destinations_of_forwarding_come_from_tables_of_the_file(tmp_path: Path) -> None:
    file, key = tmp_path / "sidecar.toml", tmp_path / "header"
    key.write_text("Bearer s3cret")
    key.chmod(0o600)
    file.write_text(
        'store = "data"\n[[forward]]\nname = "tempo"\nurl = "https://tempo.example.com"\ntext = "redact"\n'
        'headers_file = { authorization = "header" }\n'
    )
    (destination,) = options_of(read_configuration({"config": str(file)}, {}, TABLES)).destinations
    assert (destination.name, destination.text) == ("tempo", "redact")
    assert [header.read() for header in destination.headers] == ["Bearer s3cret"]
    assert destination.headers[0].file == str(key)
    file.write_text(
        'store = "data"\n[[forward]]\nname = "tempo"\nurl = "https://tempo.example.com"\nca_file = "no.pem"\n'
    )
    with pytest.raises(ConfigError) as refused:
        options_of(read_configuration({"config": str(file)}, {}, TABLES))
    output = "\n".join(refused.value.faults)
    assert f"{file}: [[forward]] 1 (tempo): text: is missing" in output
    assert str(tmp_path / "no.pem") in output
