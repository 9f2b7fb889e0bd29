"""What a run was asked to do, checked as a whole before anything is started."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corpora.errors import CorpusError
from corpora.library import Corpus
from loadtest.errors import UsageError
from loadtest.swarm.preparation import choose
from loadtest.swarm.settings import SwarmSettings
from telemetry.errors import ConfigError
from telemetry.openslo import Objective
from telemetry.slo import load_objectives

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
MAX_USERS = 100_000


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run. `out` is the folder that keeps everything of it."""

    settings: SwarmSettings
    users: int
    spawn_rate: float | None
    run_time_s: float | None
    slo: Path | None
    out: Path
    json_file: Path | None
    processes: int = 1

    def with_settings(self, **changes: Any) -> "RunRequest":
        """The same with other settings."""
        return replace(self, settings=replace(self.settings, **changes))


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """A request that can be carried out, with what was loaded to find that out."""

    request: RunRequest
    corpus: Corpus
    utterances: int
    objectives: list[Objective]

    @property
    def sentence(self) -> str:
        """What is going to be said, and where the run is kept."""
        return (
            f"{self.utterances} utterances of {self.corpus.name} ({self.corpus.kind}), "
            f"profile {self.request.settings.profile.label}; everything of this run is kept in {self.request.out}"
        )


def parse_duration_s(text: str) -> float:
    """Seconds of "90", "90s", "2m", "1h30m" or "500ms". Raises UsageError."""
    rest, total = text.strip().lower(), 0.0
    if not rest:
        raise UsageError("a duration is empty: give one such as 60s, 2m or 1h30m")
    if rest.replace(".", "", 1).isdigit():
        return _positive(float(rest), text)
    while rest:
        digits = rest[: len(rest) - len(rest.lstrip("0123456789."))]
        rest = rest[len(digits) :]
        unit = "ms" if rest.startswith("ms") else rest[:1]
        if unit not in _UNITS_S or not digits or digits.count(".") > 1 or digits == ".":
            raise UsageError(f"{text!r} is no duration: give one such as 60s, 2m or 1h30m")
        total += float(digits) * _UNITS_S[unit]
        rest = rest[len(unit) :]
    return _positive(total, text)


def _positive(seconds: float, text: str) -> float:
    if not math.isfinite(seconds) or seconds <= 0:
        raise UsageError(f"{text!r} is no duration: it must be more than 0")
    return seconds


def check(request: RunRequest) -> CheckedRun:
    """Everything that can be wrong with a request, at once. Raises UsageError with one sentence a line."""
    faults = request.settings.faults()
    if not 1 <= request.users <= MAX_USERS:
        faults.append(f"--users {request.users} is out of range: 1 to {MAX_USERS}")
    if request.spawn_rate is not None and not (math.isfinite(request.spawn_rate) and request.spawn_rate > 0):
        faults.append(f"--spawn-rate {request.spawn_rate:g} is out of range: users a second, more than 0")
    objectives: list[Objective] = []
    try:
        objectives = load_objectives(request.slo)
    except ConfigError as error:
        faults += [f"{error.where}: {fault}" for fault in error.faults]
    for file in (request.json_file, request.out / "x"):
        if file is not None and (fault := _unwritable(file)):
            faults.append(fault)
    chosen = None
    try:
        chosen = choose(request.settings)
    except CorpusError as error:
        faults.append(str(error))
    if faults or chosen is None:
        raise UsageError("\n".join(faults))
    corpus, utterances = chosen
    return CheckedRun(request, corpus, len(utterances), objectives)


def _unwritable(file: Path) -> str | None:
    if file.is_dir():
        return f"{file} is a folder: name a file to write"
    folder = file.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return None if folder.is_dir() else f"{file} cannot be written: {folder} is no folder"
