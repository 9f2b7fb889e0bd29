"""Ends of commands: by exit code, and with a sentence if someone or something ended them."""

import pytest
import typer

from loadtest.cli.guard import guarded
from loadtest.exit_codes import ExitCode


def app_of(raised: BaseException) -> typer.Typer:
    """A command line whose one command ends so."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def command() -> None:
        raise raised

    return app


def test_a_command_that_ctrl_c_ends_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: app_of(KeyboardInterrupt())([])) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "voiceprobe: interrupted\n"
    assert guarded(lambda: _raise(KeyboardInterrupt())) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "voiceprobe: interrupted\n"


def test_a_run_that_ended_in_order_reports_that_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: app_of(typer.Exit(130))([])) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == ""


def _raise(error: BaseException) -> None:
    raise error
