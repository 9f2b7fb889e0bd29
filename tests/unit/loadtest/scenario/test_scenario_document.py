"""The document of settings: what is written reads back equal, holds no secret, and nothing unknown is taken."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.distributions import Delay
from loadtest.errors import UsageError
from loadtest.scenario.document import (
    decode_scenario,
    decode_settings,
    encode_scenario,
    encode_settings,
    read_settings,
    write_settings,
)
from loadtest.scenario.fields import Option
from loadtest.scenario.file import Scenario
from loadtest.scenario.options import OPTIONS
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration

HOST = "ws://127.0.0.1:9/v1/realtime"

texts = st.text(st.characters(exclude_categories=()), max_size=20)  # also what a path holds that is not UTF-8
words = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
keys = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
durations = st.builds(Duration, st.integers(1, 3600 * 10**9))
delays = st.builds(
    Delay,
    st.sampled_from(["constant", "normal", "lognormal"]),
    st.integers(0, 10**12).map(float),
    st.integers(0, 10**6).map(float),
).map(str)
waits = st.floats(0.001, 3600) | st.sampled_from(["2s", "1m30s", "0.5", "uniform:1s:2s"])
points = delays | st.sampled_from(["random", "40%", "1.2s"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**62) | numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=4,
)
shares = st.floats(0, 1)
phases = st.fixed_dictionaries(
    {"kind": st.sampled_from(["smoke", "hold", "spike", "soak", "recovery"]), "duration": durations.map(str)},
    optional={"arrival": st.sampled_from(["constant", "poisson"])},
)
scenarios = st.fixed_dictionaries(
    {},
    optional={
        "name": words,
        "seed": st.integers(0, 2**63 - 1),
        "max_calls": st.integers(1, 100_000),
        "callers": st.fixed_dictionaries(
            {},
            optional={
                "turns": st.integers(1, 1000),
                "think": waits,
                "reply_timeout": durations.map(str) | st.floats(0.001, 3600),
                "manual_turns": st.booleans(),
                "silence_for": delays,
                "barge_in": st.lists(
                    st.fixed_dictionaries({"share": st.floats(0, 0.3)}, optional={"after": points}),
                    min_size=1,
                    max_size=3,
                ),
            },
        ),
        "speech": st.fixed_dictionaries(
            {},
            optional={
                "corpus": texts.filter(str.strip),
                "room": st.sampled_from([0.4, "far-field"]),
                "mix": st.just({"short": 1, "domain": {"home": 2.0}}),
            },
        ),
        "keep": st.fixed_dictionaries({}, optional={"audio": st.booleans(), "time": durations.map(str)}),
        "protocol": st.dictionaries(keys.filter(lambda key: key != "name"), json_values, max_size=3),
        "phases": st.lists(phases, min_size=1, max_size=3).map(
            lambda tables: [{"name": f"p{n}", "rate": 1.5, **table} for n, table in enumerate(tables)]
        ),
    },
).map(Scenario.model_validate)
# Values of the settings that are not any text, number or truth value, by name; of all others by the kind of their flag.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "protocol": st.sampled_from(["twilio", "pipecat"]),
    "arrivals": st.sampled_from(["closed", "constant"]),
    "rate": st.floats(0.001, 10_000),
    "max_calls": st.integers(1, 100_000),
    "length": st.sampled_from(["short", "long"]),
    "turns": st.integers(1, 1000),
    "clips": st.integers(1, 1000),
    "variants": st.integers(1, 1000),
    "think": waits,
    "call_pause": waits,
    "patience": waits,
    "barge_in": shares,
    "barge_in_after": points,
    "talk_over": shares,
    "silence": shares,
    "onset": st.just("sustained-50ms"),
    "mask": st.just("random"),
    **dict.fromkeys(
        ("model", "transcription_model", "sni", "sidecar", "run_id", "cohort", "region", "scenario_name"), words
    ),
}
KINDS: dict[Any, st.SearchStrategy[Any]] = {
    str: texts.filter(str.strip),
    int: st.integers(1, 2**63 - 1),
    float: numbers,
    bool: st.booleans(),
    Duration: durations,
}


def values_of(option: Option) -> st.SearchStrategy[Any]:
    if option.repeatable:
        return st.lists(texts, max_size=3).map(tuple)
    return VALUES.get(option.name, KINDS[option.kind])


settings = st.fixed_dictionaries(
    {"scenario": scenarios, "calibrated_callers": st.none() | st.integers(0, 100)},
    optional={option.name: values_of(option) for option in OPTIONS},
).map(lambda values: SwarmSettings.model_validate({"host": HOST, **values}))


@pytest.mark.slow
@given(settings)
def test_every_setting_reads_back_equal(given_settings: SwarmSettings) -> None:
    assert decode_settings(encode_settings(given_settings)) == given_settings


@pytest.mark.slow
@given(scenarios)
def test_every_scenario_reads_back_equal(scenario: Scenario) -> None:
    assert decode_scenario(encode_scenario(scenario)) == scenario


def test_unknown_key_is_refused_at_any_depth() -> None:
    document = json.loads(encode_settings(SwarmSettings(host=HOST)))
    document["turnings"] = 3
    document["scenario"] = {"phases": [{"name": "a", "kind": "hold", "duration": 5, "users": 1, "longness": 1}]}
    document["reply_timeout"] = "soon"
    with pytest.raises(UsageError) as refused:
        decode_settings(json.dumps(document), "settings.json")
    assert sorted(str(refused.value).splitlines()) == [
        "settings.json: reply_timeout: 'soon' is not a duration: write it as 500ms, 2s, 1.5m or 1h",
        "settings.json: scenario.phases[0].longness: is not a known key; known are name, kind, duration, users, rate, "
        "arrival, steps",
        "settings.json: turnings: is not a known key; did you mean turns?",
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"turns": "four"}', '{"reply_timeout": {"ns": -1}}'])
def test_a_damaged_document_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^settings\.json: ") as refused:
        decode_settings(text, "settings.json")
    assert "\n" not in str(refused.value)


def test_settings_file_is_private_and_without_url_credentials(tmp_path: Path) -> None:
    file = tmp_path / "out" / "settings.json"
    file.parent.mkdir()
    file.write_text("before")
    file.chmod(0o644)
    whole = SwarmSettings(host="wss://me:pw-4711@h/v1/realtime?model=m&key=key-4711", header=("X-Key=MY_KEY",))
    write_settings(whole, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "4711" not in file.read_text()
    read = read_settings(file)
    assert read.replaced(host=whole.host) == whole
    assert read.host.startswith("wss://h/v1/realtime")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^VOICEPROBE_SETTINGS .*settings\.json cannot be read: No such file"):
        read_settings(tmp_path / "settings.json")
