"""Configuration: one name per setting, flags override the file, all faults are reported together."""

import inspect
from pathlib import Path
from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from loadtest.distributions import Delay
from loadtest.errors import UsageError
from loadtest.targets.assistant.command import HELP, assistant_command, load
from loadtest.targets.assistant.config import AssistantConfig, Fault, build_config


def test_the_defaults_are_scripted_with_known_delays() -> None:
    config = build_config({})
    assert (config.host, config.port, config.asr, config.tts, config.cache) == (
        "127.0.0.1",
        0,
        "scripted",
        "scripted",
        "memory",
    )
    for name in ("asr_delay", "llm_ttft", "llm_gap", "tts_delay", "tts_leading_silence"):
        assert isinstance(getattr(config, name), Delay)


def test_durations_have_their_defaults() -> None:
    config = build_config({})
    times_s = (config.llm_deadline, config.llm_stall, config.tts_chunk, config.cache_ttl)
    assert tuple(time.seconds for time in times_s) == (3.0, 5.0, 0.1, 300.0)


@pytest.mark.parametrize("name", ["llm_deadline", "llm_stall", "tts_chunk", "cache_ttl"])
@pytest.mark.parametrize(
    ("value", "ns"),
    [("500ms", 500_000_000), ("0.02m", 1_200_000_000), ("2s", 2_000_000_000), ("1", 10**9), (0.25, 250_000_000)],
)
def test_every_time_is_a_duration(tmp_path: Path, name: str, value: object, ns: int) -> None:
    file = tmp_path / "assistant.toml"
    file.write_text(f"{name} = {value!r}\n")
    assert getattr(load(file, {}), name).ns == ns
    assert getattr(load(None, {name: str(value)}), name).ns == ns


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("llm_deadline", "0.5ms", "is '0.5ms'; a duration from 1ms to 10m is expected"),
        ("llm_deadline", "601s", "is '601s'; a duration from 1ms to 10m is expected"),
        ("llm_stall", "soon", "is 'soon'; a duration from 1ms to 10m is expected"),
        ("tts_chunk", "9ms", "is '9ms'; a duration from 10ms to 2s in whole milliseconds is expected"),
        ("tts_chunk", "10.5ms", "is '10.5ms'; a duration from 10ms to 2s in whole milliseconds is expected"),
        ("cache_ttl", 0, "is 0; a duration from 1ms to 100000h is expected"),
        ("cache_ttl", -1, "is -1; a duration from 1ms to 100000h is expected"),
    ],
)
def test_times_out_of_range(name: str, value: object, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_config({name: value})
    assert str(caught.value) == f"{name}: {expected}."


def test_real_engines_have_no_scripted_delays() -> None:
    config = build_config({"asr": "pocketsphinx", "tts": "espeak", "llm_url": "http://127.0.0.1:1/v1"})
    for name in ("asr_delay", "llm_ttft", "llm_gap", "tts_delay", "tts_leading_silence"):
        assert getattr(config, name) is None


def test_real_engines_stand_for_all_three_unless_one_is_chosen() -> None:
    config = build_config({"engines": "real", "tts": "espeak"})
    assert (config.asr, config.llm, config.tts) == ("whisper", "local", "espeak")
    assert config.needs_models
    assert (config.llm_ttft, config.asr_delay, config.tts_delay) == (None, None, None)
    assert not build_config({"asr": "pocketsphinx", "llm": "local", "llm_url": "http://127.0.0.1:1"}).needs_models


def test_timing_of_the_rules_is_refused_for_a_local_model() -> None:
    with pytest.raises(UsageError, match="llm_ttft: belongs to the embedded rules; leave it out"):
        build_config({"llm": "local", "llm_ttft": "constant:1ms"})


@pytest.mark.parametrize(
    ("name", "value"), [("cache_tier", "device"), ("cache_similarity", "0.9"), ("cache_url", "redis://127.0.0.1")]
)
def test_cache_setting_is_refused_if_cache_is_off(name: str, value: str) -> None:
    with pytest.raises(UsageError) as refused:
        build_config({"cache": "off", name: value})
    assert str(refused.value) == f"{name}: has no effect with cache = 'off'; leave one of them out."


def test_file_environment_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "assistant.toml"
    file.write_text('port = 8123\nasr_delay = "constant:90ms"\ncohort = "treatment=0.25"\nllm_stream = false\n')
    monkeypatch.setenv("VOICEPROBE_TOKEN", "secret")
    config = load(file, {"port": "8124", "seed": None})
    assert (config.port, config.token, config.llm_stream) == (8124, "secret", False)
    assert config.asr_delay == Delay("constant", 90_000_000)
    assert config.split is not None
    assert (config.split.treatment, config.split.share, config.split.control) == ("treatment", 0.25, "control")


def test_all_faults_are_reported_together() -> None:
    with pytest.raises(UsageError) as caught:
        build_config(
            {
                "prot": 1,
                "port": 70_000,
                "asr": "magic",
                "tts_pace": "fast",
                "llm_url": "model",
                "cohort": "half",
                "asr_delay": "60",
                "token": 5,
                "llm_stream": "maybe",
                "asr_lm": "/there/is/no/such/file",
            }
        )
    lines = str(caught.value).splitlines()
    assert len(lines) == 10
    assert all(line.endswith(".") for line in lines)
    assert "port: is 70000; a whole number from 0 to 65535 is expected." in lines
    assert "asr: is 'magic'; one of scripted, pocketsphinx, whisper is expected." in lines
    assert "llm_stream: is 'maybe'; true or false is expected." in lines
    assert any(line.startswith("prot: is not a known key; did you mean port?") for line in lines)
    assert "is 5" not in str(caught.value), "a token is not shown"


def test_faults_of_the_file_have_its_lines_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "assistant.toml"
    file.write_text(
        '# Slow.\nport = "x"\nasr = "pocketsphinx"\nasr_delay = "none"\n"\\u001b[2J" = 1\ntts_pace = true\ntoken = 7\n'
    )
    with pytest.raises(UsageError) as caught:
        load(file, {"tts_pace": "-1", "seed": "1.5"})
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{file}: line 2, port: is 'x'; a whole number from 0 to 65535 is expected."
    assert lines[1].startswith(f"{file}: line 4, asr_delay: belongs to the scripted engine; leave it out")
    assert lines[2].startswith(f"{file}: line 5, \\x1b[2J: is not a known key; known are host, ")
    assert lines[3].startswith(f"{file}: line 7, token: is empty or not text;")
    assert lines[4:] == [
        "seed: is '1.5'; a whole number from 0 to 9223372036854775807 is expected.",
        "tts_pace: is -1.0; a number from 0 to 1000 is expected.",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", True),
        ("port", 8.0),
        ("port", "8.0"),
        pytest.param("port", 16**6000, id="port-huge"),
        ("tts_pace", float("nan")),
        ("tts_pace", "nan"),
        ("tts_pace", True),
        ("tts_pace", 10**400),
        ("llm_stall", True),
        ("llm_stall", float("nan")),
        ("llm_stall", ["5s"]),
        ("cache_ttl", 10**400),
        pytest.param("cache_ttl", -(16**6000), id="ttl-huge"),
        ("host", ""),
        ("run_id", ""),
        pytest.param("llm_model", 16**6000, id="model-huge"),
        ("asr", ["scripted"]),
        ("llm_url", "http://[::1"),
        ("llm_url", "http://"),
        ("cohort", "a=nan"),
        ("cohort", 0.5),
        ("asr_delay", 60),
        ("asr_lm", "~no-such-user-anywhere/x"),
        ("asr_lm", "a\0b"),
        pytest.param("llm_model", ["\x1b[2J" * 1_000_000], id="model-long"),
    ],
)
def test_invalid_setting_is_one_short_line(name: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        build_config({name: value})
    assert str(caught.value).startswith(f"{name}: ")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("port", " 8_123 ", 8123),
        ("tts_pace", 2, 2.0),
        ("tts_pace", "2e0", 2.0),
        ("llm_stream", "off", False),
        ("llm_stream", 1, True),
        ("llm_parallel", "3", 3),
    ],
)
def test_flags_are_text_and_files_have_types(name: str, value: object, read: object) -> None:
    assert getattr(build_config({name: value}), name) == read


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"host": "0.0.0.0"}, "token"),
        ({"asr": "pocketsphinx", "asr_delay": "none"}, "scripted"),
        ({"tts": "espeak", "tts_delay": "none"}, "scripted"),
        ({"llm_url": "http://h/v1", "llm_ttft": "none"}, "rules"),
        ({"cohort": "control=0.5"}, "two names"),
    ],
)
def test_contradictions(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_config(values)


def test_other_addresses_than_loopback_are_allowed_with_a_token() -> None:
    assert build_config({"host": "0.0.0.0", "token": "t"}).asks_for_token


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe"])
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"bad\.toml"):
        load(file, {})
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "missing.toml", {})


def test_every_setting_has_a_flag_and_help() -> None:
    assert set(inspect.signature(assistant_command).parameters) == {*AssistantConfig.model_fields, "config"}
    assert all(field.title for field in AssistantConfig.model_fields.values())
    assert all(fault in HELP for fault in get_args(Fault))


def test_the_command_line_reports_faults_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()
    app.command()(assistant_command)
    result = CliRunner().invoke(app, ["--port", "x", "--asr", "magic"])
    assert result.exit_code == 2
    assert len((result.stderr or capsys.readouterr().err).strip().splitlines()) == 2


def test_faults_affect_the_same_calls_in_a_repeated_run() -> None:
    def hit(**settings: object) -> list[str | None]:
        config = build_config(settings)
        return [config.fault_of(number) for number in range(2000)]

    some = hit(fault="garbage", fault_share=0.2, fault_seed=3)
    assert some == hit(fault="garbage", fault_share=0.2, fault_seed=3)
    assert some.count("garbage") / 2000 == pytest.approx(0.2, abs=0.03)
    assert set(some) == {"garbage", None}
    assert set(hit()) == {None}
