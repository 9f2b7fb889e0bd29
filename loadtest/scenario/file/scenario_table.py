"""A scenario file as a whole, as a pydantic model."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from loadtest.scenario.file import fields
from loadtest.scenario.file.callers_table import CallersTable
from loadtest.scenario.file.fields import Text, TomlTable
from loadtest.scenario.file.phases import MAX_USERS, Phase
from loadtest.scenario.file.phases_table import PhaseTable, read_levels, rules_between
from loadtest.scenario.file.speech_table import SpeechTable
from telemetry.model.validation import Path


class ScenarioTable(TomlTable):
    """Everything that a file may hold."""

    name: Text | None = fields.text()
    seed: int | None = fields.whole(0, 2**63 - 1)
    max_calls: int | None = fields.whole(1, MAX_USERS)
    callers: CallersTable | None = fields.table()
    speech: SpeechTable | None = fields.table()
    phases: list[PhaseTable] = fields.tables("phases")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """What holds between phases."""
        del faulty
        phases = table.get("phases")
        if isinstance(phases, list):
            yield from (
                (("phases", *path), sentence) for path, sentence in rules_between(cast("Sequence[Any]", phases))
            )

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
