"""Gives a command the flags of the callers that it sends: one list for all commands, and for Locust."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from loadtest.scenario.access import TARGET_VARIABLE
from loadtest.scenario.options import OPTIONS, About, Option
from loadtest.scenario.settings import SwarmSettings

Target = Annotated[
    str,
    typer.Argument(
        help="address of the endpoint, ws:// or wss://; one with credentials is better put into the variable",
        envvar=TARGET_VARIABLE,
    ),
]
Users = Annotated[int, typer.Option("--users", "-u", help="callers at the same time")]
Processes = Annotated[int, typer.Option(help="processes that share the callers, a core for each")]
Slo = Annotated[Path | None, typer.Option(help="objectives, an OpenSLO file (default: the built-in set)")]
Out = Annotated[Path | None, typer.Option(help="folder for everything of this run (default: runs/<time>)")]
Json = Annotated[Path | None, typer.Option("--json", help="write the result as one JSON object")]


def sends_callers(*about: About) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command has the flags about these in place of its parameter `settings`, which they fill. Its other parameters
    are its own flags."""
    options = [each for each in OPTIONS if each.about in about]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_settings(**given: Any) -> None:
            said = {option.name: given.pop(option.name) for option in options}
            said |= {option.name: tuple(said[option.name]) for option in options if option.repeatable}
            command(settings=SwarmSettings(**said), **given)

        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            parameters += map(_parameter, options) if own.name == "settings" else [own.replace(kind=own.KEYWORD_ONLY)]
        with_settings.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_settings.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_settings

    return decorate


def _parameter(option: Option) -> inspect.Parameter:
    names = [option.ours or option.flag] if option.ours or option.kind is bool else []
    kind: Any = list[str] if option.repeatable else option.kind
    declared = typer.Option(option.default, *names, help=option.help, metavar=option.metavar)
    annotation = kind if option.default is not None else kind | None
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=annotation)
