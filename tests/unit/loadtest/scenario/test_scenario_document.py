"""The document of settings: what is written reads back equal, holds no secret, and nothing unknown is taken."""

import json
import stat
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.distributions import Delay
from loadtest.errors import UsageError
from loadtest.scenario.behavior import BargeIn, PointDraw
from loadtest.scenario.document import (
    decode_scenario,
    decode_settings,
    encode_scenario,
    encode_settings,
    read_settings,
    write_settings,
)
from loadtest.scenario.file import Scenario, load_scenario
from loadtest.scenario.file.callers import Callers
from loadtest.scenario.file.phases import Phase
from loadtest.scenario.file.speech import Speech
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration

EXAMPLES = Path(__file__).parents[4] / "examples" / "scenarios"
HOST = "ws://127.0.0.1:9/v1/realtime"

texts = st.text(st.characters(exclude_categories=()), max_size=20)  # also what a path holds that is not UTF-8
numbers = st.floats(allow_nan=False, allow_infinity=False)
durations = st.builds(Duration, st.integers(0, 2**63 - 1))
delays = st.builds(
    Delay,
    st.sampled_from(["none", "constant", "uniform", "normal", "lognormal"]),
    numbers,
    numbers,
    numbers,
    st.integers(0, 2**62),
)
points = st.builds(PointDraw, st.none() | delays, st.tuples(numbers, numbers))
barge_ins = st.lists(st.builds(BargeIn, numbers, points), max_size=3).map(tuple)
seconds = st.none() | numbers | texts
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**62) | numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
callers = st.builds(
    Callers,
    turns=st.none() | st.integers(1, 1000),
    think=seconds,
    call_pause=seconds,
    patience=seconds,
    reply_timeout=st.none() | durations,
    reply_silence=st.none() | durations,
    longest_reply=st.none() | durations,
    manual_turns=st.none() | st.booleans(),
    talk_over=st.none() | numbers,
    silence_for=st.none() | delays,
    barge_ins=barge_ins,
)
phases = st.builds(
    Phase,
    texts,
    st.sampled_from(["smoke", "ramp", "hold", "spike", "soak", "recovery"]),
    numbers,
    numbers,
    st.sampled_from(["users", "rate"]),
    numbers,
    numbers,
    st.none() | st.sampled_from(["constant", "poisson"]),
)
scenarios = st.builds(
    Scenario,
    name=st.none() | texts,
    seed=st.none() | st.integers(0, 2**63 - 1),
    max_calls=st.none() | st.integers(1, 100_000),
    callers=callers,
    speech=st.builds(Speech, corpus=st.none() | texts, snr_db=st.none() | numbers, mix=st.none() | texts),
    phases=st.lists(phases, max_size=3).map(tuple),
    protocol=st.none() | texts,
    protocol_settings=st.dictionaries(texts, json_values, max_size=3),
)
# Every setting, by its type: a new one that has none here fails the test below.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "str": texts,
    "str | None": st.none() | texts,
    "int": st.integers(0, 2**63 - 1),
    "int | None": st.none() | st.integers(0, 2**63 - 1),
    "float": numbers,
    "float | None": st.none() | numbers,
    "bool": st.booleans(),
    "float | str": numbers | texts,
    "float | str | None": seconds,
    "Duration": durations,
    "Duration | None": st.none() | durations,
    "Scenario": scenarios,
    "tuple[str, ...]": st.lists(texts, max_size=3).map(tuple),
}


def type_name(kind: Any) -> str:
    name = kind.__name__ if isinstance(kind, type) and "[" not in str(kind) else str(kind)
    return name.replace("telemetry.model.durations.", "")


settings = st.fixed_dictionaries(
    {each.name: VALUES[type_name(each.type)] for each in fields(SwarmSettings) if each.name != "host"}
).map(lambda values: SwarmSettings(host=HOST, **values))


@given(settings)
def test_every_setting_reads_back_equal(given_settings: SwarmSettings) -> None:
    assert decode_settings(encode_settings(given_settings)) == given_settings


@given(scenarios)
def test_every_scenario_reads_back_equal(scenario: Scenario) -> None:
    assert decode_scenario(encode_scenario(scenario)) == scenario


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.stem)
def test_the_examples_read_back_equal(file: Path) -> None:
    scenario = load_scenario(file)
    whole = SwarmSettings(host=HOST).with_scenario(scenario, ())
    assert decode_scenario(encode_scenario(scenario)) == scenario
    assert decode_settings(encode_settings(whole)) == whole


def test_a_key_that_is_not_a_setting_is_refused_wherever_it_stands() -> None:
    scenario = Scenario(phases=(Phase("a", "hold", 0.0, 5.0, "users", 1.0, 1.0),))
    document = json.loads(encode_settings(SwarmSettings(host=HOST, scenario=scenario)))
    document["turnings"] = 3
    document["scenario"]["phases"][0]["longness"] = 1
    document["reply_timeout"]["unit"] = "s"
    with pytest.raises(UsageError) as refused:
        decode_settings(json.dumps(document), "settings.json")
    assert sorted(str(refused.value).splitlines()) == [
        "settings.json: the key reply_timeout.unit is unknown; leave it out",
        "settings.json: the key scenario.phases.0.longness is unknown; leave it out",
        "settings.json: the key turnings is unknown; leave it out",
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"turns": "four"}', '{"reply_timeout": {"ns": -1}}'])
def test_a_damaged_document_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"^settings\.json: cannot be read: .*; it is written by voiceprobe"
    ) as refused:
        decode_settings(text, "settings.json")
    assert "\n" not in str(refused.value)


def test_the_file_is_its_owners_alone_and_without_the_credentials_of_the_address(tmp_path: Path) -> None:
    file = tmp_path / "out" / "settings.json"
    file.parent.mkdir()
    file.write_text("before")
    file.chmod(0o644)
    whole = SwarmSettings(host="wss://me:pw-4711@h/v1/realtime?model=m&key=key-4711", header=("X-Key=MY_KEY",))
    write_settings(whole, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "4711" not in file.read_text()
    found = read_settings(file)
    assert replace(found, host=whole.host) == whole
    assert found.host.startswith("wss://h/v1/realtime")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^VOICEPROBE_SETTINGS .*settings\.json cannot be read: No such file"):
        read_settings(tmp_path / "settings.json")
