"""Settings from a file, the environment and flags: which one holds, and every fault of all three."""

import json
import tomllib
from pathlib import Path

import pytest

from telemetry.sidecar.configuration import FILE_BYTES_MAX, read_configuration, settings_shown
from telemetry.sidecar.settings import CONFIG, SETTINGS, SidecarSetting


def _file(folder: Path, text: str) -> dict[str, str]:
    file = folder / "sidecar.toml"
    file.write_text(text)
    return {"config": str(file)}


def test_flag_precedes_variable_and_variable_precedes_file(tmp_path: Path) -> None:
    named = _file(tmp_path, "http_port = 1\ngrpc_port = 2\nmax_connections = 3\n")
    variables = {"VOICEPROBE_SIDECAR_HTTP_PORT": "11", "VOICEPROBE_SIDECAR_GRPC_PORT": "12"}
    read = read_configuration({**named, "http_port": "111"}, variables)
    assert read.faults == []
    keys = ("http_port", "grpc_port", "max_connections", "body_memory")
    assert [read.value(key) for key in keys] == [111, 12, 3, 128]
    file = named["config"]
    origins = ["--http-port", "VOICEPROBE_SIDECAR_GRPC_PORT", f"{file}: max_connections", "default"]
    assert [read.origin(key) for key in keys] == origins


@pytest.mark.parametrize(
    "setting", [setting for setting in SETTINGS if setting.in_file], ids=lambda setting: setting.key
)
def test_every_setting_can_be_given_in_each_of_the_three_ways(setting: SidecarSetting, tmp_path: Path) -> None:
    text = {"boolean": "true", "integer": "70", "number": "70.5", "path": "here"}.get(setting.kind, "words")
    text = setting.choices[-1] if setting.choices else text
    in_toml = json.dumps(text) if setting.kind in ("text", "path") else text
    for read in (
        read_configuration({setting.key: text == "true" or text}, {}),
        read_configuration({}, {setting.variable: text}),
        read_configuration(_file(tmp_path, f"{setting.key} = {in_toml}"), {}),
        read_configuration({}, {CONFIG.variable: _file(tmp_path, f"{setting.key} = {in_toml}")["config"]}),
    ):
        assert read.faults == []
        assert str(read.value(setting.key)).lower().endswith(text)
        assert read.origin(setting.key) != "default"


def test_all_faults_of_all_sources_are_found_at_once(tmp_path: Path) -> None:
    named = _file(tmp_path, 'http_prot = 1\ngrpc_port = "2"\nkeep_days = true\ntoken = "s3cret"\n[stored]\n')
    variables = {"VOICEPROBE_SIDECAR_BODY_MEMORY": "63", "VOICEPROBE_SIDECAR_TLS_CRT": "a.pem"}
    file = named["config"]
    assert read_configuration({**named, "idle_timeout": "nan", "token": "s3cret"}, variables).faults == [
        f"{file}: 'http_prot' is not a known key; did you mean http_port?",
        f"{file}: grpc_port is '2'; give a whole number from 0 to 65535",
        f"{file}: keep_days is true; give a number of at least 0.01",
        f"{file}: token: a secret does not belong in this file; give token_file instead",
        f"{file}: 'stored' is not a known key; did you mean store?",
        "VOICEPROBE_SIDECAR_BODY_MEMORY is '63'; give a whole number of at least 64",
        "VOICEPROBE_SIDECAR_TLS_CRT in the environment is not a known variable; "
        "did you mean VOICEPROBE_SIDECAR_TLS_CERT?",
        "--token: every list of processes would show it; put it into a file and give --token-file, "
        "or set VOICEPROBE_SIDECAR_TOKEN",
        "--idle-timeout is 'nan'; give a number of at least 0.1",
    ]


def test_no_fault_shows_a_token(tmp_path: Path) -> None:
    variables = {"VOICEPROBE_SIDECAR_TOKEN": "s3cret\0"}
    read = read_configuration({**_file(tmp_path, 'token = "s3cret"'), "token": "s3cret"}, variables)
    assert len(read.faults) == 3
    assert "s3cret" not in " ".join(read.faults)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"http_port = \n", "is not TOML (Invalid value (at line 1, column 13)); mend that line"),
        (b"\xff", "is not TOML ("),
        (b"a = " + b"[" * 5000, "is not TOML ("),
        (b" " * (FILE_BYTES_MAX + 1), "is not a file of at most 1 MiB; give a TOML file with --config"),
        (None, "cannot be read (No such file or directory); give a TOML file with --config"),
    ],
    ids=["broken", "no text", "deep", "large", "missing"],
)
def test_a_file_that_cannot_be_read_is_one_fault(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    file = tmp_path / "sidecar.toml"
    if content is not None:
        file.write_bytes(content)
    (fault,) = read_configuration({"config": str(file)}, {}).faults
    assert fault.startswith(f"{file}: {sentence}")
    (fault,) = read_configuration({"config": str(tmp_path)}, {}).faults
    assert "is not a file" in fault


def test_a_path_in_a_file_starts_from_its_folder(tmp_path: Path) -> None:
    read = read_configuration(_file(tmp_path, 'store = "data"\nslo = "/etc/slo.yaml"'), {})
    assert (read.value("store"), read.value("slo")) == (str(tmp_path / "data"), "/etc/slo.yaml")
    assert read_configuration({"store": "data"}, {}).value("store") == "data"


def test_variables_of_others_are_left_alone() -> None:
    # Kubernetes sets the first ones for a service of that name, and those who send to a sidecar read the last ones.
    given = ("SERVICE_HOST", "SERVICE_PORT_OTLP_HTTP", "PORT", "PORT_4318_TCP_ADDR", "CA_FILE", "CLIENT_CERT")
    read = read_configuration({}, {f"VOICEPROBE_SIDECAR_{name}": "x" for name in given} | {"VOICEPROBE_TOKEN": "x"})
    assert (read.faults, read.given) == ([], {})
    assert read_configuration({}, {"VOICEPROBE_SIDECAR_HTTP_PORT": ""}).given == {}


def test_token_and_token_file_take_precedence_by_their_source(tmp_path: Path) -> None:
    variables = {"VOICEPROBE_SIDECAR_TOKEN": "s3cret"}
    assert set(read_configuration({"token_file": "f"}, variables).given) == {"token_file"}
    assert set(read_configuration(_file(tmp_path, 'token_file = "f"'), variables).given) == {"token"}
    read = read_configuration({}, {**variables, "VOICEPROBE_SIDECAR_TOKEN_FILE": "f"})
    assert read.faults == [
        "VOICEPROBE_SIDECAR_TOKEN and VOICEPROBE_SIDECAR_TOKEN_FILE both give a token; remove one of them"
    ]


def test_known_tables_are_passed_on_and_others_are_faults(tmp_path: Path) -> None:
    named = _file(tmp_path, "[[forward]]\nendpoint = 'x'\n[[forward]]\n[forwards]\n")
    read = read_configuration(named, {}, ("forward",))
    assert read.tables == {"forward": [{"endpoint": "x"}, {}]}
    assert read.faults == [f"{named['config']}: 'forwards' is not a known key; did you mean forward?"]


def test_shown_settings_are_equivalent_file_without_secrets(tmp_path: Path) -> None:
    named = _file(tmp_path, "[[forward]]\ntoken = 'f0rward'\n")
    variables = {"VOICEPROBE_SIDECAR_TOKEN": "s3cret", "VOICEPROBE_SIDECAR_KEEP_DAYS": "2.5"}
    read = read_configuration({**named, "store": 'a "b"\\', "keep_transcripts": True}, variables, ("forward",))
    shown = settings_shown(read)
    assert "s3cret" not in shown
    assert "f0rward" not in shown
    assert "# token = [hidden]  # VOICEPROBE_SIDECAR_TOKEN" in shown
    assert f"# forward: 1 tables  # {named['config']}; values are not shown" in shown
    expected = {setting.key: read.value(setting.key) for setting in SETTINGS if not setting.is_secret}
    assert tomllib.loads(shown) == {key: value for key, value in expected.items() if value is not None}
