"""The folder of calibrations, which later runs can cite, and the machine and engine that they depend on."""

import hashlib
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from corpora.manifest.library import data_home
from loadtest.reports.calibration_citing import (
    CALIBRATION_SCHEMA,
    Citation,
    Stored,
    advice,
    automatic_processes,
    choose,
    cite,
)
from loadtest.run.json_file import write_json
from loadtest.run.processes import ROOT
from loadtest.swarm.cores import most_processes, usable_cores
from loadtest.swarm.priority import may_be_realtime


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
    stored: list[Stored] = []
    for file in sorted(calibrations_folder().glob("*.json")):
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(value, dict) and value.get("schema_version") == CALIBRATION_SCHEMA:
            stored.append(value)
    return stored


def citation(users: int, processes: int) -> Citation:
    """Return what a run with that many callers in that many processes may say of the instrument's own error."""
    machine = fingerprint()
    return cite(choose(kept(), machine), machine, users, processes)


def process_advice(users: int, processes: int) -> str | None:
    """Return what this machine's calibration has against so many callers in so many processes; None for nothing."""
    machine = fingerprint()
    return advice(choose(kept(), machine), machine, users, processes)


def wanted_processes(users: int) -> int:
    """Return how many processes so many callers should share here, by the calibration or without one."""
    machine = fingerprint()
    return automatic_processes(choose(kept(), machine), machine, users, most_processes(usable_cores()))


UNKNOWN: Final = "unknown"
# The code between the wire and the figures: a change in it may change the instrument's error.
_ENGINE: Final = (
    "loadtest/engine",
    "loadtest/conversation",
    "loadtest/protocols",
    "loadtest/audio",
    "loadtest/scenario",
    "loadtest/speech",
    "loadtest/swarm",
    "loadtest/timerfd.py",
)


def fingerprint() -> dict[str, str]:
    """This machine and this engine, in words."""
    return {
        "cpu": _cpu(),
        "cores": str(usable_cores()),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        # The scheduling latency of a generator of this user among other processes.
        "priority": "real-time" if may_be_realtime() else "normal",
        "engine": engine_version(),
        "gevent": _version("gevent"),
        "locust": _version("locust"),
    }


def engine_version() -> str:
    """The distribution's version and a digest of the engine's sources, which change more often than it does."""
    digest = hashlib.sha256()
    for name in _ENGINE:
        place = ROOT / name
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    released, digested = _version("voiceprobe"), digest.hexdigest()[:8]
    return digested if released == UNKNOWN else f"{released}+{digested}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine() or UNKNOWN


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return UNKNOWN
