"""The flags of the settings and of a run's load, for Locust's command line and for ours, and what flags make."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import UnionType
from typing import Any, Final, TypeVar, get_args, get_origin

from pydantic.fields import FieldInfo

from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.scenario.document import decode_scenario
from loadtest.scenario.fields import GROUPS, Option
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration
from telemetry.model.validation import CheckedTable, validated

Made = TypeVar("Made", bound=CheckedTable)


def _option(name: str, field: FieldInfo, option: Option) -> Option:
    kinds = get_args(field.annotation) if get_origin(field.annotation) is UnionType else (field.annotation,)
    repeatable = any(get_origin(kind) is tuple for kind in kinds)
    kind = next((kind for kind in (Duration, str, bool, int, float) if kind in kinds), str)
    default: Any = None if option.guessed else field.default
    if repeatable:
        default = list(field.default)
    return replace(option, name=name, kind=kind, repeatable=repeatable, default=default)


def _options_of(model: type[CheckedTable]) -> tuple[Option, ...]:
    options = (
        _option(name, field, option)
        for name, field in model.model_fields.items()
        for option in field.metadata
        if isinstance(option, Option)
    )
    return tuple(sorted(options, key=lambda option: GROUPS.index(option.group)))


OPTIONS: Final = _options_of(SwarmSettings)
LOAD_OPTIONS: Final = _options_of(RunLoad)


def settings_from(values: Mapping[str, Any], unreadable: list[str] | None = None) -> SwarmSettings:
    """Return the settings that flags make, by name; one without a value, or with an empty text, keeps its default.

    The protocol is then the one that the address is most likely for. Raises UsageError with a line for each value that
    cannot be used, and for each that then contradicts another; where `unreadable` is given, the lines of the first kind
    are added to it instead, and the defaults stay.
    """
    # The file was read where the flag was given.
    scenario = values.get("voice_scenario")
    given = _given(OPTIONS, values) | {"host": values.get("host") or ""}
    given |= {"scenario": decode_scenario(scenario)} if scenario else {}
    settings, lines = _made(SwarmSettings, given, _with_protocol)
    if lines and unreadable is None:
        raise UsageError("\n".join([*lines, *(settings.faults(calls=False) if settings.host else ())]))
    if unreadable is not None:
        unreadable += lines
    return settings


def load_from(values: Mapping[str, Any], unreadable: list[str] | None = None) -> RunLoad:
    """Return the load that flags make, likewise."""
    load, lines = _made(RunLoad, _given(LOAD_OPTIONS, values))
    if lines and unreadable is None:
        raise UsageError("\n".join(lines))
    if unreadable is not None:
        unreadable += lines
    return load


def _given(options: Sequence[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    # Locust's parser and its web UI have no "not given" for text: it comes as an empty string.
    pairs = ((option, values.get(option.name)) for option in options)
    return {option.name: _as_kind(option, value) for option, value in pairs if value not in (None, "")}


def _made(
    model: type[Made], given: dict[str, Any], complete: Callable[[dict[str, Any]], dict[str, Any]] = dict
) -> tuple[Made, list[str]]:
    """Return the model of what is given, with a line for each value that cannot be used and has its default."""
    made, faults = validated(model, complete(given))
    if made is not None:
        return made, []
    faulty = {fault.path[0] for fault in faults}
    usable = {name: value for name, value in given.items() if name not in faulty}
    return model.model_validate(complete(usable)), [f"{_flag(str(fault.path[0]))} {fault.sentence}" for fault in faults]


def _as_kind(option: Option, value: Any) -> Any:
    """Return the value with what the fields of Locust's page make of it undone: a number there is a text."""
    if option.repeatable:
        return [entry for entry in value if entry]
    if isinstance(value, str) and option.kind in (int, float):
        try:
            return option.kind(value)
        except ValueError:
            return value
    return value


def _with_protocol(given: dict[str, Any]) -> dict[str, Any]:
    host = given["host"]
    return {**({"protocol": registry.guess(host)} if host else {}), **given}


def _flag(name: str) -> str:
    return next(option.ours or option.flag for option in (*OPTIONS, *LOAD_OPTIONS) if option.name == name)
