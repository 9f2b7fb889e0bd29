"""Settings that only one protocol knows: read from flags and the scenario file, checked by the protocol, with all
faults."""

from collections.abc import Mapping
from typing import Any

import pytest

from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.scenario.access import parse_protocol_options
from loadtest.scenario.document import decode_settings, encode_settings
from loadtest.scenario.file import parse_scenario
from loadtest.scenario.options import settings_from
from loadtest.scenario.settings import SwarmSettings

TARGET = "ws://127.0.0.1:9/v1/realtime"
SECRET = "sk-4f9a77e2c1d0"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("en", "en"),
        ("", ""),
        ("24000", 24_000),
        ("-2", -2),
        ("0.5", 0.5),
        ("007", "007"),
        ("1e3", "1e3"),
        ("-0", "-0"),
        ("+15005550006", "+15005550006"),
        ("false", False),
        ("null", None),
        ('"5"', "5"),
        ('["asr", "tts"]', ["asr", "tts"]),
        ('{"tier":"gold"}', {"tier": "gold"}),
        ('{"tier":', '{"tier":'),
        ("a=b", "a=b"),
        ("./wire.yaml", "./wire.yaml"),
    ],
)
def test_a_value_is_json_where_it_is_exactly_that(text: str, value: object) -> None:
    (parsed,) = parse_protocol_options([f"setting={text}"]).values()
    assert (type(parsed), parsed) == (type(value), value)


def test_all_faulty_options_are_reported_without_their_values() -> None:
    given = ["language=en", SECRET, f"={SECRET}", "language=de", f"a b={SECRET}"]
    with pytest.raises(UsageError) as caught:
        parse_protocol_options(given)
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert "--protocol-option language: the setting is given twice; leave one out" in lines
    assert SECRET not in str(caught.value)


def test_digits_are_taken_as_text_where_protocol_requires_it() -> None:
    settings = SwarmSettings(host=TARGET, protocol="twilio", protocol_option=("dtmf=12",))
    assert settings.faults() == []
    assert SwarmSettings(host=TARGET, protocol="twilio", protocol_option=("dtmf=1x",)).faults() == [
        "twilio: the setting 'dtmf' is not valid: give the keys of a telephone: 0 to 9, *, # and A to D"
    ]


SCENARIO = """
[protocol]
name = "pipecat"
input_rate_hz = 24000
rtvi_version = "1.4.0"
"""


def settings(text: str, given: Mapping[str, Any]) -> SwarmSettings:
    made = settings_from({"host": TARGET, **given})
    return made.with_scenario(parse_scenario(text), given)


def test_scenario_names_protocol_and_settings_and_flags_win() -> None:
    filled = settings(SCENARIO, {"protocol_option": ["input_rate_hz=8000"]})
    assert (filled.protocol, filled.faults()) == ("pipecat", [])
    assert filled.protocol_settings == {"input_rate_hz": 8000, "rtvi_version": "1.4.0"}
    assert filled.caller_options.settings == filled.protocol_settings
    assert registry.make_caller(filled.protocol, filled.caller_options).capabilities.input_rate_hz == 8000


def test_settings_of_the_named_protocol_are_not_those_of_another() -> None:
    other = settings(SCENARIO, {"protocol": "twilio"})
    assert (other.protocol, other.protocol_settings, other.faults()) == ("twilio", {}, [])
    unnamed = settings("[protocol]\ndtmf = '5'\n", {"protocol": "twilio"})
    assert unnamed.protocol_settings == {"dtmf": "5"}


def test_protocol_of_scenario_wins_over_address() -> None:
    asked = settings_from({"host": "tcp://127.0.0.1:9"})
    assert asked.protocol == "wyoming"
    assert asked.with_scenario(parse_scenario(SCENARIO), ()).protocol == "pipecat"
    assert asked.with_scenario(parse_scenario("[protocol]\nlanguage = 'en'\n"), ()).protocol == "wyoming"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("protocol = 3", "write it as a table, under [protocol]"),
        ("[protocol]\nname = 'sip'", "one of asr, declared, "),
        ("[protocol]\nname = 3", "one of asr, declared, "),
        ("[protocol.session]\nsince = [2026-01-01]", "write a date or a time as a text in quotes"),
        ("[protocol]\nat = 12:30:00", "write a date or a time as a text in quotes"),
    ],
)
def test_a_table_that_no_protocol_can_use(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_scenario(text)
    assert sentence in str(caught.value)
    assert "protocol" in str(caught.value)


def test_faults_of_the_protocol_are_among_all_others_once() -> None:
    faulty = SwarmSettings(
        host=TARGET,
        protocol="twilio",
        protocol_option=("from_number=5", "encodnig=x"),
        model="m",
        header=("Host=A",),
    )
    faults = faulty.faults()
    assert sum("--header Host" in fault for fault in faults) == 1
    assert [fault.partition(":")[2][:40] for fault in faults if fault.startswith("twilio:")] == [
        " a telephone call cannot choose model: l",
        " the setting 'from_number' is not valid:",
        " there is no setting 'encodnig'; known: ",
    ]
    unreadable = SwarmSettings(host=TARGET, protocol_option=("language",))
    assert len(unreadable.faults()) == 1
    assert unreadable.faults(calls=False) == unreadable.faults()


def test_process_without_calls_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = SwarmSettings(host=TARGET, protocol="http-cascade", protocol_option=("llm_key=LLM_KEY",))
    monkeypatch.delenv("LLM_KEY", raising=False)
    sentence = "http-cascade: the setting 'llm_key' is not valid: give the name of an environment variable"
    assert [fault for fault in stages.faults() if fault.startswith(sentence)]
    assert not [fault for fault in stages.faults(calls=False) if "llm_key" in fault]


def test_a_key_is_neither_stored_nor_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_KEY", SECRET)
    scenario = parse_scenario("[protocol]\ntts_key = 'TTS_KEY'\n")
    monkeypatch.setenv("TTS_KEY", "another-secret")
    stages = SwarmSettings(
        host=TARGET, protocol="http-cascade", protocol_option=("llm_key=LLM_KEY",), scenario=scenario
    )
    document = encode_settings(stages)
    assert decode_settings(document).protocol_settings == {"tts_key": "TTS_KEY", "llm_key": "LLM_KEY"}
    assert SECRET not in document + repr(stages)
    assert "another-secret" not in document + repr(stages)
    echo = f"401: invalid key {SECRET}, nor another-secret"
    assert stages.redactor.text(echo) == "401: invalid key [hidden], nor [hidden]"
