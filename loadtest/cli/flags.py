"""The flags that commands share, in the groups of their help; the callers' come from one list, as Locust's do."""

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from loadtest.errors import UsageError
from loadtest.scenario.access import TARGET_VARIABLE
from loadtest.scenario.fields import GROUPS, Group, Option, Scope
from loadtest.scenario.options import LOAD_OPTIONS, OPTIONS, load_from, settings_from
from telemetry.model.durations import METAVAR, Duration, DurationError

_UNREADABLE: Final = "voiceprobe.unreadable"
_NUMBERS: Final[dict[Any, str]] = {
    int: "a whole number: write it in digits, such as 10",
    float: "a number: write it in digits, such as 1.5",
}


def panel(group: Group) -> str:
    """The heading under which help lists the flags of a group."""
    return group.capitalize()


def flag(group: Group, *names: str, help: str, metavar: str | None = None) -> Any:  # noqa: A002 - typer's own word
    """A flag of a command, listed in a group of its help."""
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel(group))


def given_on_command_line(context: typer.Context) -> list[str]:
    """The parameters of a command that are given on the command line, in the order of its help."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def durations(unreadable: list[str] | None = None, /, **texts: str) -> dict[str, Duration]:
    """The durations that flags give, by the flags' names. Raises UsageError with a line for each that is not one; where
    `unreadable` is given, the lines are added to it instead, and those names are left out."""
    parsed: dict[str, Duration] = {}
    faults: list[str] = []
    for name, text in texts.items():
        try:
            parsed[name] = Duration.parse(text)
        except DurationError as error:
            faults.append(f"--{name.replace('_', '-')} {error}")
    if faults and unreadable is None:
        raise UsageError("\n".join(faults))
    if unreadable is not None:
        unreadable += faults
    return parsed


Target = Annotated[
    str,
    typer.Argument(
        help="address of the endpoint; ${NAME} in its query is taken from the environment; one with other credentials "
        "is better put into the variable",
        envvar=TARGET_VARIABLE,
    ),
]


class AllFaultsAtOnce(TyperCommand):
    """A command that reports all faults at once, where typer would name a missing target, or the first flag that is not
    a number, alone. A flag that cannot be read has its default until then; the target has the default "", and help
    shows it as required."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            if parameter.name == "target":
                parameter.required = True
            if parameter.name != "help":
                parameter.process_value = _collecting(parameter, parameter.process_value)  # type: ignore[method-assign]


def _collecting(parameter: Any, process: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Process a value as `process` does, with its fault in the context's list of what cannot be read."""

    def collecting(context: Any, value: Any) -> Any:
        try:
            return process(context, value)
        except typer.BadParameter as error:
            wanted = _NUMBERS.get(parameter.type_descriptor.annotation)
            fault = f"is not {wanted}" if wanted else f"cannot be used: {error.message}"
            unreadable_of(context).append(f"{parameter.opts[0]} {value!r} {fault}")
            return parameter.get_default(context)

    return collecting


def unreadable_of(context: Any) -> list[str]:
    """A sentence for each flag that could not be read so far."""
    unreadable: list[str] = context.meta.setdefault(_UNREADABLE, [])
    return unreadable


Smallest = Annotated[float, flag("objectives", help="smallest difference that matters, in milliseconds")]
SMALLEST_MS: Final = 50.0
Users = Annotated[int, flag("load", "--users", "-u", help="callers at the same time")]
Slo = Annotated[Path | None, flag("objectives", help="objectives, an OpenSLO file (default: the built-in set)")]
SloOfRuns = Annotated[
    Path | None,
    flag("objectives", "--slo", help="objectives, an OpenSLO file (default: those of each run, else the built-in set)"),
]
Out = Annotated[Path | None, flag("output", help="folder for everything of this run (default: runs/<time>)")]
Json = Annotated[Path | None, flag("output", "--json", help="write the result as one JSON object")]

Places = Annotated[
    list[str] | None,
    flag(
        "output",
        "--runs",
        help="where runs are: a folder of them, a run's folder, a store, or http://HOST:4318 of a sidecar (with its "
        "token); may be repeated (default: runs)",
        metavar="PLACE",
    ),
]


def sends_callers(
    *scopes: Scope, load_flags: Collection[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the callers' flags of these scopes in place of its parameter `settings`, which they fill.

    The settings also hold the address, where the command has a parameter `target`. A command with a parameter `load`
    gets the flags of a run's load in its place, or those in `load_flags`. One with a parameter `unreadable` gets a line
    there for each flag that cannot be read, to report all faults at once. Its other parameters are its own flags. Help
    lists all of them by group.
    """
    options = [option for option in OPTIONS if option.scope in scopes]
    load_options = [option for option in LOAD_OPTIONS if load_flags is None or option.name in load_flags]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own_parameters = inspect.signature(command).parameters.values()
        names = {own.name for own in own_parameters}
        collects = "unreadable" in names

        @wraps(command)
        def with_settings(**given: Any) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            context: typer.Context | None = given.get("context") if "context" in names else given.pop("context", None)
            unreadable = [] if context is None else unreadable_of(context)
            collected = unreadable if collects else None
            given["settings"] = settings_from({**values, "host": given.get("target")}, collected)
            if "load" in names:
                given["load"] = load_from({option.name: given.pop(option.name) for option in load_options}, collected)
            command(**given, **({"unreadable": unreadable} if collects else {}))

        parameters: list[inspect.Parameter] = []
        if collects and "context" not in names:
            parameters.append(inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
        for own in own_parameters:
            if own.name == "unreadable":
                continue
            derived = {"settings": options, "load": load_options}.get(own.name)
            parameters += [own.replace(kind=own.KEYWORD_ONLY)] if derived is None else map(_parameter, derived)
        parameters.sort(key=_place)
        with_settings.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_settings.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_settings

    return decorate


def _parameter(option: Option) -> inspect.Parameter:
    names = [option.ours or option.flag] if option.ours or option.short or option.kind is bool else []
    names += [option.short] if option.short else []
    kind: Any = list[str] if option.repeatable else str if option.kind is Duration else option.kind
    metavar = METAVAR if option.kind is Duration else option.metavar
    declared = typer.Option(*names, help=option.help, metavar=metavar, rich_help_panel=panel(option.group))
    annotation = Annotated[kind if option.default is not None else kind | None, declared]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation)


def _place(parameter: inspect.Parameter) -> int:
    """The position of a parameter's group in the help; arguments come first."""
    panels = [
        getattr(declared, "rich_help_panel", None) for declared in getattr(parameter.annotation, "__metadata__", ())
    ]
    return next((GROUPS.index(group) for group in GROUPS if panel(group) in panels), -1)
