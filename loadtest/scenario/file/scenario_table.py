"""A scenario file as a whole, as a pydantic model."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, time
from typing import Any, Final, cast

from loadtest.protocols import registry
from loadtest.scenario.file import fields
from loadtest.scenario.file.callers_table import CallersTable
from loadtest.scenario.file.fields import Text, TomlTable
from loadtest.scenario.file.keep_table import KeepTable
from loadtest.scenario.file.phases import MAX_USERS, Phase
from loadtest.scenario.file.phases_table import PhaseTable, read_levels, rules_between
from loadtest.scenario.file.speech_table import SpeechTable
from telemetry.model.fault_sentences import Path, shown

_NAME: Final = "name"  # of the protocol; every other key of the table is a setting of it


class ScenarioTable(TomlTable):
    """Everything that a file may hold."""

    name: Text | None = fields.text()
    seed: int | None = fields.whole(0, 2**63 - 1)
    max_calls: int | None = fields.whole(1, MAX_USERS)
    protocol: dict[str, Any] | None = fields.free_table("protocol")
    callers: CallersTable | None = fields.table()
    speech: SpeechTable | None = fields.table()
    keep: KeepTable | None = fields.table()
    phases: list[PhaseTable] = fields.tables("phases")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """What holds between phases, and what the settings of a protocol are made of."""
        protocol = _as_table(table.get("protocol"))
        if protocol is not None and "protocol" not in faulty:
            yield from ((("protocol", *path), sentence) for path, sentence in _protocol_faults(protocol))
        phases = table.get("phases")
        if isinstance(phases, list):
            yield from (
                (("phases", *path), sentence) for path, sentence in rules_between(cast("Sequence[Any]", phases))
            )

    @property
    def protocol_name(self) -> str | None:
        """The protocol that the settings are for, if the file names it."""
        return (self.protocol or {}).get(_NAME)

    @property
    def protocol_settings(self) -> dict[str, Any]:
        """The settings of the protocol, without its name."""
        return {name: value for name, value in (self.protocol or {}).items() if name != _NAME}

    def read_phases(self) -> tuple[Phase, ...]:
        """The phases, each beginning where the one before it ends."""
        found: list[Phase] = []
        begin_s = level = 0.0
        for phase in self.phases:
            levels, _ = read_levels({key: getattr(phase, key) for key in phase.model_fields_set}, level)
            if levels is None:
                raise ValueError(f"the phase {phase.name} has no levels")
            found += phase.phases(begin_s, levels)
            level = levels[1]
            begin_s += phase.duration.seconds
        return tuple(found)


def _as_table(value: object) -> Mapping[str, Any] | None:
    """Return a value that is a table, else None."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def _protocol_faults(table: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    name = table.get(_NAME)
    if name is not None and name not in registry.names():
        yield (_NAME,), f"is {shown(name)}; one of {', '.join(registry.names())} is expected"
    yield from _no_json(table, ())


def _no_json(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Find dates and times, which TOML has and no protocol does."""
    if isinstance(value, date | time):
        yield path, f"is {shown(value)}; write a date or a time as a text in quotes"
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            yield from _no_json(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(cast("list[Any]", value)):
            yield from _no_json(inner, (*path, number))
