"""A scenario file as a whole: TOML in, one immutable value out, or every fault at once."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.errors import UsageError
from loadtest.scenario.file.callers import Callers
from loadtest.scenario.file.keep import KeptParts
from loadtest.scenario.file.phases import Phase
from loadtest.scenario.file.speech import Speech


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a scenario file says; without a file, nothing."""

    name: str | None = None
    seed: int | None = None
    max_calls: int | None = None  # under way at the same time, where calls begin by a schedule
    callers: Callers = field(default_factory=Callers)
    speech: Speech = field(default_factory=Speech)
    keep: KeptParts = field(default_factory=KeptParts)
    phases: tuple[Phase, ...] = ()
    protocol: str | None = None
    protocol_settings: dict[str, Any] = field(default_factory=dict[str, Any])  # of that protocol; JSON values

    def settings(self) -> dict[str, Any]:
        """What it says of things that are also flags, by the names that SwarmSettings gives them."""
        found = {
            "scenario_name": self.name,
            "seed": self.seed,
            "max_calls": self.max_calls,
            "protocol": self.protocol,
            **self.callers.settings(),
            **self.speech.settings(),
            **self.keep.settings(),
        }
        return {name: value for name, value in found.items() if value is not None}


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file. Raises UsageError with one line for each fault."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"--scenario {path} cannot be read: {reason}") from None
    return parse_scenario(text, file=path.name, name=path.stem)


def parse_scenario(text: str, *, file: str = "scenario", name: str | None = None) -> Scenario:
    """Read the text of a scenario file; `name` is its name where it does not say one. Raises UsageError."""
    # Imported when a file is read: pydantic takes as long as a tenth of all that `voiceprobe --help` does.
    from loadtest.scenario.file.scenario_table import ScenarioTable
    from loadtest.toml_text import parse_toml
    from telemetry.model.validation import validated

    toml = parse_toml(text, file)
    table, faults = validated(ScenarioTable, toml.table)
    if table is None:
        raise UsageError("\n".join(toml.sentences(faults)))
    return Scenario(
        name=table.name or name,
        seed=table.seed,
        max_calls=table.max_calls,
        callers=table.callers.callers() if table.callers is not None else Callers(),
        speech=table.speech.speech() if table.speech is not None else Speech(),
        keep=table.keep.kept() if table.keep is not None else KeptParts(),
        phases=table.read_phases(),
        protocol=table.protocol_name,
        protocol_settings=table.protocol_settings,
    )
