"""A scenario file as a whole: TOML in, one immutable value out, or every fault at once."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.errors import UsageError
from loadtest.scenario.file.callers import Callers, read_callers
from loadtest.scenario.file.phases import MAX_USERS, Phase, read_phases
from loadtest.scenario.file.section import Section
from loadtest.scenario.file.speech import Speech, read_speech


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a scenario file says. Nothing, where there is none."""

    name: str | None = None
    seed: int | None = None
    max_calls: int | None = None  # under way at the same time, where calls begin by a schedule
    callers: Callers = field(default_factory=Callers)
    speech: Speech = field(default_factory=Speech)
    phases: tuple[Phase, ...] = ()

    def settings(self) -> dict[str, Any]:
        """What it says of things that are also flags, by the names that SwarmSettings gives them."""
        found = {
            "scenario_name": self.name,
            "seed": self.seed,
            "max_calls": self.max_calls,
            **self.callers.settings(),
            **self.speech.settings(),
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
    try:
        top_table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: is not TOML: {error}") from None
    faults: list[str] = []
    top = Section(top_table, "", faults)
    found = read_scenario(top, name=name)
    top.close()
    if faults:
        raise UsageError("\n".join(f"{file}: {fault}" for fault in faults))
    return found


def read_scenario(top: Section, *, name: str | None = None) -> Scenario:
    """Read every section of a file. Faults go to the sections; then what is given back is not to be used."""
    own_name = top.text("name")
    seed = top.integer("seed", 0, 2**63 - 1)
    max_calls = top.integer("max_calls", 1, MAX_USERS)
    callers, speech = top.table("callers"), top.table("speech")
    return Scenario(
        name=own_name or name,
        seed=seed,
        max_calls=max_calls,
        callers=read_callers(callers) if callers is not None else Callers(),
        speech=read_speech(speech) if speech is not None else Speech(),
        phases=read_phases(top.tables("phases")),
    )
