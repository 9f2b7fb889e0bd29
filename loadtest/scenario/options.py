"""The flags of the settings, for Locust's command line and for ours, and the settings that flags make."""

from collections.abc import Mapping
from dataclasses import replace
from types import UnionType
from typing import Any, Final, get_args, get_origin

from pydantic.fields import FieldInfo

from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.scenario.document import decode_scenario
from loadtest.scenario.fields import GROUPS, Option
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration
from telemetry.model.validation import validated


def _option(name: str, field: FieldInfo, option: Option) -> Option:
    kinds = get_args(field.annotation) if get_origin(field.annotation) is UnionType else (field.annotation,)
    repeatable = any(get_origin(kind) is tuple for kind in kinds)
    kind = next((each for each in (Duration, str, bool, int, float) if each in kinds), str)
    default: Any = None if option.guessed else field.default
    if repeatable:
        default = list(field.default)
    return replace(option, name=name, kind=kind, repeatable=repeatable, default=default)


OPTIONS: Final = tuple(
    sorted(
        (
            _option(name, field, option)
            for name, field in SwarmSettings.model_fields.items()
            for option in field.metadata
            if isinstance(option, Option)
        ),
        key=lambda option: GROUPS.index(option.group),
    )
)


def settings_from(values: Mapping[str, Any], unreadable: list[str] | None = None) -> SwarmSettings:
    """Return the settings that flags make, by name; one without a value, or with an empty text, keeps its default.

    The protocol is then the one that the address is most likely for. Raises UsageError with a line for each value that
    cannot be used, and for each that then contradicts another; where `unreadable` is given, the lines of the first kind
    are added to it instead, and the defaults stand.
    """
    # Locust's parser and its web UI have no "not given" for text: it comes as an empty string.
    given: dict[str, Any] = {
        option.name: _as_kind(option, value)
        for option in OPTIONS
        if (value := values.get(option.name)) not in (None, "")
    }
    # The file was read where the flag was given.
    scenario = values.get("voice_scenario")
    given |= {"host": values.get("host") or "", **({"scenario": decode_scenario(scenario)} if scenario else {})}
    settings, faults = validated(SwarmSettings, _with_protocol(given))
    if settings is not None:
        return settings
    lines = [f"{_flag(str(fault.path[0]))} {fault.sentence}" for fault in faults]
    faulty = {fault.path[0] for fault in faults}
    settings = SwarmSettings.model_validate(
        _with_protocol({name: value for name, value in given.items() if name not in faulty})
    )
    if unreadable is None:
        raise UsageError("\n".join([*lines, *(settings.faults(calls=False) if settings.host else ())]))
    unreadable += lines
    return settings


def _as_kind(option: Option, value: Any) -> Any:
    """Return the value with what the fields of Locust's page make of it undone: a number there is a text."""
    if option.repeatable:
        return [each for each in value if each]
    if isinstance(value, str) and option.kind in (int, float):
        try:
            return option.kind(value)
        except ValueError:
            return value
    return value


def _with_protocol(given: Mapping[str, Any]) -> dict[str, Any]:
    host = given["host"]
    return {**({"protocol": registry.guess(host)} if host else {}), **given}


def _flag(name: str) -> str:
    return next(option.ours or option.flag for option in OPTIONS if option.name == name)
