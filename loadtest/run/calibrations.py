"""Where calibrations are kept, so that later runs can cite them: a JSON file each, in the user's data folder."""

import json
from pathlib import Path
from typing import Any

from corpora.manifest.library import data_home
from loadtest.reports.calibration_citing import CALIBRATION_SCHEMA, Citation, Stored, choose, cite
from loadtest.reports.process_advice import advice, automatic_processes
from loadtest.run.json_file import write_json
from loadtest.run.machine import fingerprint
from loadtest.swarm.cores import most_processes, usable_cores


def calibrations_folder() -> Path:
    """The folder of all calibrations of this user."""
    return data_home() / "calibrations"


def keep(stored: dict[str, Any]) -> Path:
    """Store a calibration; its file."""
    file = calibrations_folder() / f"{stored['id']}.json"
    write_json(file, stored)
    return file


def kept() -> list[Stored]:
    """Every calibration that can be read. One that cannot, or is of another schema, is as if it had not been made."""
    found: list[Stored] = []
    for file in sorted(calibrations_folder().glob("*.json")):
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(value, dict) and value.get("schema_version") == CALIBRATION_SCHEMA:
            found.append(value)
    return found


def citation(users: int, processes: int) -> Citation:
    """What a run with that many callers in that many processes may say of the instrument's own error."""
    machine = fingerprint()
    return cite(choose(kept(), machine), machine, users, processes)


def process_advice(users: int, processes: int) -> str | None:
    """What this machine's calibration has against so many callers in so many processes; None for nothing."""
    machine = fingerprint()
    return advice(choose(kept(), machine), machine, users, processes)


def wanted_processes(users: int) -> int:
    """How many processes so many callers should share here, by the calibration or without one."""
    machine = fingerprint()
    return automatic_processes(choose(kept(), machine), machine, users, most_processes(usable_cores()))
