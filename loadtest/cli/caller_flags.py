"""Gives a command the flags of the callers that it sends: one list for all commands, and for Locust."""

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from loadtest.swarm.options import OPTIONS, For, Option
from loadtest.swarm.settings import SwarmSettings

Slo = Annotated[Path | None, typer.Option(help="objectives, an OpenSLO file (default: the built-in set)")]
Out = Annotated[Path | None, typer.Option(help="folder for everything of this run (default: runs/<time>)")]
Json = Annotated[Path | None, typer.Option("--json", help="write the result as one JSON object")]


def sends_callers(
    *known_to: For, only: Collection[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command has the flags that are known to these, or `only` some of them, in place of its parameter `settings`,
    which they fill. Its other parameters are its own flags."""
    options = [each for each in OPTIONS if each.known_to in known_to and (only is None or each.name in only)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_settings(**given: Any) -> None:
            said = {option.name: _said(option, given.pop(option.name)) for option in options}
            command(settings=SwarmSettings(**said), **given)

        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            parameters += map(_parameter, options) if own.name == "settings" else [own.replace(kind=own.KEYWORD_ONLY)]
        with_settings.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_settings.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_settings

    return decorate


def _parameter(option: Option) -> inspect.Parameter:
    names = [option.short or option.flag] if option.short or option.kind is bool else []
    kind: Any = list[str] if option.repeatable else option.kind
    default = None if option.repeatable else option.default
    declared = typer.Option(default, *names, help=option.help, metavar=option.metavar)
    annotation = kind if default is not None else kind | None
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=annotation)


def _said(option: Option, value: Any) -> Any:
    return tuple(value or ()) if option.repeatable else value
