"""Commands that send callers have the callers' flags, and get them as settings."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from loadtest.cli.flags import durations, sends_callers
from loadtest.errors import UsageError
from loadtest.scenario.behavior import parse_patience, parse_think
from loadtest.scenario.fields import Option, Scope
from loadtest.scenario.options import OPTIONS, load_from, settings_from
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration


def parsed(
    *arguments: str, scopes: tuple[Scope, ...] = ("speech", "callers", "run"), target: str = "ws://h"
) -> SwarmSettings:
    """Parse a command line with these flags."""
    app, seen = typer.Typer(), list[SwarmSettings]()

    @app.command()
    @sends_callers(*scopes)
    def command(target: Annotated[str, typer.Argument()], users: int = 1, *, settings: SwarmSettings) -> None:
        assert (settings.host, users) == (target, 3)
        seen.append(settings)

    done = CliRunner().invoke(app, [target, "--users", "3", *arguments])
    assert done.exit_code == 0, done.output
    return seen[0]


def test_without_flags_the_settings_are_the_defaults() -> None:
    assert parsed() == SwarmSettings(host="ws://h")


def test_protocol_follows_from_address_unless_given() -> None:
    assert parsed(target="tcp://h:1").protocol == "wyoming"
    assert parsed(target="ws://h/ws-client").protocol == "pipecat"
    assert parsed("--protocol", "twilio", target="ws://h/ws-client").protocol == "twilio"
    given = parsed("--protocol", "openai-realtime", target="http://h/v1")
    assert (given.protocol, given.host) == ("openai-realtime", "http://h/v1")
    # In Locust's page, a field without a text is a flag that is not given.
    assert settings_from({"host": "http://h/v1", "protocol": ""}).protocol == "http-cascade"


def test_flags_of_every_kind_fill_the_settings() -> None:
    settings = parsed(
        *("--noise", "babble", "--snr", "7.5", "--clips", "9", "--conversations", "--think", "2", "--rate", "0.5"),
        *("--header", "X-One=ONE", "--header", "X-Two=TWO", "--profile", "noise=pink snr=3", "--max-calls", "12"),
    )
    assert (settings.noise, settings.snr, settings.clips, settings.conversations) == ("babble", 7.5, 9, True)
    assert (settings.think, settings.rate, settings.max_calls) == (parse_think(2), 0.5, 12)
    assert settings.header == ("X-One=ONE", "X-Two=TWO")
    assert settings.speech_profiles == "noise=pink snr=3"


def test_a_command_has_no_more_flags_than_it_was_given() -> None:
    assert parsed("--noise", "pink", scopes=("speech",)).noise == "pink"
    with pytest.raises(AssertionError, match="No such option"):
        parsed("--turns", "3", scopes=("speech",))
    for option in OPTIONS:
        if option.scope == "locust":
            with pytest.raises(AssertionError, match="No such option"):
                parsed(option.flag, "x")


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if option.kind is Duration], ids=lambda option: option.name
)
@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("2s", 2_000), ("1.5m", 90_000), ("1h", 3_600_000), ("8", 8_000), ("0.5", 500)]
)
def test_every_duration_flag_accepts_every_notation(option: Option, text: str, ms: int) -> None:
    assert getattr(parsed(option.flag, text), option.name) == Duration(ms * 1_000_000)


def test_invalid_durations_are_reported_for_all_flags_at_once() -> None:
    values = {"reply_timeout": "a while", "longest_reply": "2 weeks", "endpointing": "1s"}
    with pytest.raises(UsageError) as refused:
        settings_from(values)
    assert str(refused.value).splitlines() == [
        "--reply-timeout 'a while' is not a duration: write it as 500ms, 2s, 1.5m or 1h",
        "--longest-reply '2 weeks' is not a duration: write it as 500ms, 2s, 1.5m or 1h",
    ]
    with pytest.raises(UsageError, match=r"^--run-time '' is not a duration: write it as .*\n--stop-timeout '3 days'"):
        durations(run_time="", stop_timeout="3 days", rest="0")
    assert durations(rest="0", run_time="1.5m") == {"rest": Duration(), "run_time": Duration.of_s(90)}


@pytest.mark.parametrize("text", ["500ms", "2s", "1.5m", "0.25", "1h"])
def test_pauses_and_patience_are_durations_too(text: str) -> None:
    settings = parsed("--think", text, "--patience", text, "--call-pause", text)
    seconds = Duration.parse(text).seconds
    assert settings.behavior.patience == parse_patience(seconds)
    assert settings.behavior.think == settings.behavior.call_pause == parse_think(seconds)
    assert settings.faults() == []


def test_a_number_of_processes_may_be_left_to_the_calibration() -> None:
    assert [load_from({"processes": given}).processes for given in ("3", "auto")] == [3, "auto"]
    with pytest.raises(UsageError, match="--processes 'many' is not a number of processes"):
        load_from({"processes": "many"})
