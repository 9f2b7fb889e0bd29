"""Commands that send callers have the callers' flags, and get them as settings."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from loadtest.cli.flags import sends_callers
from loadtest.scenario.options import OPTIONS, Scope
from loadtest.scenario.settings import SwarmSettings


def parsed(*arguments: str, scopes: tuple[Scope, ...] = ("speech", "callers", "run")) -> SwarmSettings:
    """What a command with these flags makes of a command line."""
    app, seen = typer.Typer(), list[SwarmSettings]()

    @app.command()
    @sends_callers(*scopes)
    def command(target: Annotated[str, typer.Argument()], users: int = 1, *, settings: SwarmSettings) -> None:
        assert (target, users) == ("ws://h", 3)
        seen.append(settings)

    done = CliRunner().invoke(app, ["ws://h", "--users", "3", *arguments])
    assert done.exit_code == 0, done.output
    return seen[0]


def test_without_flags_the_settings_are_the_defaults() -> None:
    assert parsed() == SwarmSettings(think="1.0")


def test_flags_of_every_kind_fill_the_settings() -> None:
    settings = parsed(
        *("--noise", "babble", "--snr", "7.5", "--clips", "9", "--conversations", "--think", "2", "--rate", "0.5"),
        *("--header", "X-One=ONE", "--header", "X-Two=TWO", "--profile", "noise=pink snr=3", "--max-calls", "12"),
    )
    assert (settings.noise, settings.snr, settings.clips, settings.conversations) == ("babble", 7.5, 9, True)
    assert (settings.think, settings.rate, settings.max_calls) == ("2", 0.5, 12)
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
