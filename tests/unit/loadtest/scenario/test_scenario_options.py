"""One list of flags: what a command is told arrives in the Locust process as it was."""

import json
import subprocess
import sys
from dataclasses import asdict, fields
from typing import Any

import pytest

from loadtest.run.processes import environment
from loadtest.scenario.options import OPTIONS, Option, as_arguments, settings_from
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration

HOST = "ws://127.0.0.1:9/v1/realtime"
OF_LOCUST = {"host", "scenario"}  # --host is its own flag, and a scenario arrives as a file
# In a process of its own: importing Locust patches the one that does.
PARSE = """
import json, sys
from dataclasses import asdict
from locust.argument_parser import get_parser
from loadtest.swarm import flags
from loadtest.scenario.options import settings_from
for arguments in json.load(sys.stdin):
    settings = settings_from(vars(get_parser().parse_args(arguments)))
    print(json.dumps(asdict(settings), default=str))
"""


def parsed_by_locust(*settings: SwarmSettings) -> list[dict[str, Any]]:
    arguments = [["--host", each.host, *as_arguments(each)] for each in settings]
    done = subprocess.run(
        [sys.executable, "-c", PARSE],
        input=json.dumps(arguments),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def other(option: Option) -> Any:
    """A value that is not the default, and that a command line could mistake."""
    if option.kind is bool:
        return True
    if option.repeatable:
        return ("X-One=ONE", "X-Two=TWO")
    if option.kind is Duration:
        return Duration.parse("7s")
    return f"-{option.name} 5%" if option.kind is str else option.kind(7)


def test_every_setting_is_a_flag() -> None:
    assert {option.name for option in OPTIONS} | OF_LOCUST == {field.name for field in fields(SwarmSettings)}
    assert len({option.flag for option in OPTIONS}) == len(OPTIONS)


def test_what_is_passed_on_arrives_as_it_was() -> None:
    plain = SwarmSettings(host=HOST)
    all_else = SwarmSettings(host=HOST, **{option.name: other(option) for option in OPTIONS})
    nothing = SwarmSettings(host=HOST, talk_over=0.0, seed=0)
    wanted = [json.loads(json.dumps(asdict(each), default=str)) for each in (plain, all_else, nothing)]
    assert parsed_by_locust(plain, all_else, nothing) == wanted


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_flag_says_what_it_is_in_one_sentence(option: Option) -> None:
    assert option.help
    assert option.help[0].islower() or option.help.startswith(("WebSocket", "PEM", "OTLP"))
    assert not option.help.endswith(".")


def test_what_locust_has_no_value_for_keeps_its_default() -> None:
    settings = settings_from({"host": HOST, "noise": "", "snr": None, "turns": 2, "users": 7})
    assert (settings.host, settings.noise, settings.snr, settings.turns) == (HOST, None, None, 2)
    assert settings.think == SwarmSettings().think
