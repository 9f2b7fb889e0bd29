"""One list of flags: what Locust is given, as a document or as flags, is what its callers have."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UsageError
from loadtest.run.processes import environment
from loadtest.scenario.document import SETTINGS_VARIABLE, write_settings
from loadtest.scenario.fields import Option
from loadtest.scenario.file import load_scenario
from loadtest.scenario.options import OPTIONS, settings_from
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration

HOST = "ws://127.0.0.1:9/v1/realtime"
SCENARIO = Path(__file__).parents[4] / "examples" / "scenarios" / "impatient.toml"
# --host is Locust's own flag, a scenario is a file, and of its calibration a command alone can say.
NO_FLAGS = {
    *("host", "scenario"),
    *("calibration", "calibrated_to_ms", "calibration_state", "calibrated_callers", "calibrated_processes"),
    "calibration_date",
}
# What is checked when it is given.
SPECIAL = {
    "protocol": "pipecat",
    "arrivals": "poisson",
    "length": "medium",
    "think": "2s",
    "call_pause": "1m",
    "patience": "lognormal:3s:0.5",
    "barge_in_after": "40%",
    "onset": "sustained-50ms",
    "mask": "random",
}
# In a process of its own: importing Locust patches the one that does.
PARSE = """
import json, sys
from types import SimpleNamespace
from locust.argument_parser import get_parser
from loadtest.swarm import flags
from loadtest.swarm.resolution import settings_of
for arguments in json.load(sys.stdin):
    sys.argv[1:] = arguments
    options = get_parser().parse_args(arguments)
    settings = settings_of(SimpleNamespace(parsed_options=options, host=options.host))
    print(json.dumps(settings.model_dump()))
"""


def settings_in_locust(*arguments: list[str], document: Path | None = None) -> list[dict[str, Any]]:
    given = {} if document is None else {SETTINGS_VARIABLE: str(document)}
    done = subprocess.run(
        [sys.executable, "-c", PARSE],
        input=json.dumps(arguments),
        env=environment() | given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def plain(settings: SwarmSettings) -> dict[str, Any]:
    return json.loads(json.dumps(settings.model_dump()))


def as_typed(settings: SwarmSettings) -> Iterator[str]:
    """The flags that a person types for these settings."""
    yield from ("--host", settings.host)
    for option in OPTIONS:
        value = getattr(settings, option.name)
        if option.repeatable:
            yield from (part for one in value for part in (option.flag, one))
        elif option.kind is bool:
            yield from [option.flag] if value else []
        elif value is not None:
            yield f"{option.flag}={value}"  # joined, so that a value that begins with a dash is not a flag


def other(option: Option) -> Any:
    """A value that is not the default, and that a command line could mistake."""
    if option.kind is bool:
        return True
    if option.repeatable:
        return ("X-One=ONE", "X-Two=TWO")
    if option.kind is Duration:
        return Duration.parse("7s")
    if option.kind is float:
        return 0.5
    return SPECIAL.get(option.name, f"-{option.name} 5%") if option.kind is str else 7


def test_every_setting_is_a_flag() -> None:
    assert {option.name for option in OPTIONS} | NO_FLAGS == set(SwarmSettings.model_fields)
    assert len({option.flag for option in OPTIONS}) == len(OPTIONS)


@pytest.mark.slow
def test_typed_settings_arrive_unchanged() -> None:
    default = SwarmSettings(host=HOST)
    all_else = SwarmSettings(host=HOST, **{option.name: other(option) for option in OPTIONS})
    nothing = SwarmSettings(host=HOST, talk_over=0.0, seed=0)
    wanted = [default, all_else, nothing]
    assert settings_in_locust(*(list(as_typed(swarm_settings)) for swarm_settings in wanted)) == [
        plain(swarm_settings) for swarm_settings in wanted
    ]


@pytest.mark.slow
def test_settings_of_command_reach_locust_unchanged_by_flags(tmp_path: Path) -> None:
    values = {option.name: other(option) for option in OPTIONS if not option.is_per_machine}
    settings = SwarmSettings(host=HOST, **values, calibration="within 2 ms", calibrated_callers=50)
    settings = settings.with_scenario(load_scenario(SCENARIO), ("turns",))
    write_settings(settings, tmp_path / "settings.json")
    received = settings_in_locust(
        ["--host", HOST],
        ["--host", HOST, "--turns", "9", "--spool", "mine"],
        document=tmp_path / "settings.json",
    )
    assert received == [plain(settings), plain(settings.replaced(spool="mine"))]


@pytest.mark.slow
def test_a_scenario_file_gives_locust_what_it_gives_a_command() -> None:
    scenario = load_scenario(SCENARIO)
    base = SwarmSettings(host=HOST, turns=9).with_scenario(scenario, ("turns",))
    (received,) = settings_in_locust(["--host", HOST, "--scenario", str(SCENARIO), "--turns", "9"])
    assert received == plain(base)


@pytest.mark.slow
def test_invalid_settings_document_ends_locust_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"turn": 3}')
    done = subprocess.run(
        [sys.executable, "-c", PARSE],
        input=json.dumps([["--host", HOST]]),
        env=os.environ | environment() | {SETTINGS_VARIABLE: str(tmp_path / "settings.json")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"voiceprobe: {tmp_path / 'settings.json'}: turn: is not a known key; did you mean turns?\n"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_flag_says_what_it_is_in_one_sentence(option: Option) -> None:
    assert option.help
    assert option.help[0].islower() or option.help.startswith(("WebSocket", "PEM", "OTLP"))
    assert not option.help.endswith(".")


def test_a_number_typed_into_locusts_page_is_a_number() -> None:
    # The page gives every field that had no value before as a text, and a list as its lines.
    settings = settings_from({"host": HOST, "calls": "5", "snr": "7.5", "header": [""]})
    assert (settings.calls, settings.snr, settings.header) == (5, 7.5, ())
    with pytest.raises(UsageError, match=r"^--calls is 'five'; a whole number, 1 or more is expected$"):
        settings_from({"host": HOST, "calls": "five"})


def test_plain_locust_names_all_faults_at_once() -> None:
    with pytest.raises(UsageError) as refused:
        settings_from({"host": "ftp://x", "turns": 0, "mask": "carnival", "noise": "pinkk", "rate": 2.0})
    lines = str(refused.value).splitlines()
    assert len(lines) == 5
    for part in ("--turns is 0;", "--mask 'carnival'", "'ftp://x' is not", "pinkk", "--rate requires --arrivals"):
        assert sum(part in line for line in lines) == 1, (part, lines)


def test_setting_without_value_in_locust_keeps_default() -> None:
    settings = settings_from({"host": HOST, "noise": "", "snr": None, "turns": 2, "users": 7})
    assert (settings.host, settings.noise, settings.snr, settings.turns) == (HOST, None, None, 2)
    assert settings.think == SwarmSettings().think
