"""The request for a run, checked as a whole before anything is started."""

import contextlib
import fcntl
import math
import os
import statistics
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.manifest.errors import CorpusError
from corpora.output_paths import unwritable, unwritable_folder
from loadtest.engine.local_limits import most_files, shortage_of_files
from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.run import forecast
from loadtest.scenario.file import load_scenario
from loadtest.scenario.sections import USERS, RunLoad
from loadtest.scenario.settings import SwarmSettings
from telemetry.client_tls import sidecar_token
from telemetry.model.durations import Duration
from telemetry.model.errors import ConfigError
from telemetry.objectives.objective import Objective
from telemetry.objectives.observable import ChosenObjectives, built_in_objectives
from telemetry.objectives.slo import load_objectives, objectives_text

if TYPE_CHECKING:
    from corpora.manifest.library import Corpus
    from loadtest.scenario.declaration import AskedLoad

OPEN_RUN = Duration.parse("1m")  # of calls that begin by a rate, where nobody says a time


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run. `out` is the folder that keeps everything of it."""

    settings: SwarmSettings
    load: RunLoad
    slo: Path | None
    out: Path
    json_file: Path | None
    scenario: Path | None = None
    given: frozenset[str] = frozenset()  # the command line takes precedence over the scenario
    unreadable: tuple[str, ...] = ()  # a sentence for each flag that could not be read, and kept its default

    @property
    def users(self) -> int:
        """Number of callers; by default one for each process, and at most one for each call."""
        if self.load.users is not None:
            return self.load.users
        if self.settings.host.startswith("tcp-listen:"):
            return 1
        processes = self.load.processes
        wanted = max(USERS, processes if isinstance(processes, int) else 1)
        return wanted if self.settings.calls is None else max(1, min(wanted, self.settings.calls))

    @property
    def run_time_s(self) -> float | None:
        """Duration of the run; None if nothing bounds it."""
        return None if self.load.run_time is None else self.load.run_time.seconds

    @property
    def processes(self) -> int:
        """Number of processes that share the callers."""
        if not isinstance(self.load.processes, int):
            from loadtest.run.calibrations import wanted_processes

            return wanted_processes(self.users)
        return self.load.processes

    @property
    def asked(self) -> "AskedLoad":
        """The load as the processes of the run declare it."""
        from loadtest.scenario.declaration import AskedLoad

        return AskedLoad(self.users, self.run_time_s, self.processes)

    def with_load(self, **changes: Any) -> "RunRequest":
        """The same with another load."""
        return replace(self, load=self.load.model_copy(update=changes))

    def with_settings(self, **changes: Any) -> "RunRequest":
        """The same with other settings."""
        return replace(self, settings=self.settings.replaced(**changes))


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """A request that can be carried out, with what was loaded to find that out."""

    request: RunRequest
    corpus: "Corpus"
    utterances: int
    speech_s: float  # of an utterance in the mean
    objectives: list[Objective]
    chosen: ChosenObjectives | None = None  # of the built-in objectives; None where a file states them

    @property
    def objectives_text(self) -> str:
        """The objectives as an OpenSLO file. Raises ConfigError where the file that was given cannot be read."""
        return objectives_text(self.request.slo) if self.chosen is None else self.chosen.text

    @property
    def left_out(self) -> str | None:
        """The built-in objectives that this wire cannot show, in one line; None where there are none."""
        return None if self.chosen is None else self.chosen.sentence(self.request.settings.protocol)

    @property
    def expected(self) -> forecast.Forecast:
        """About how many turns and calls the run yields."""
        return forecast.forecast(self.request.settings, self._load)

    @property
    def expectation(self) -> str | None:
        """About how many turns the run yields, and what to ask for where its objectives need more."""
        return forecast.sentence(self.request.settings, self._load, self.objectives)

    @property
    def _load(self) -> forecast.Load:
        return forecast.Load(self.request.users, self.request.run_time_s, self.speech_s)

    def with_an_end(self) -> "CheckedRun":
        """The same; without a time, a number of calls and phases, it ends when every objective has turns enough."""
        request = self.request
        if request.run_time_s is not None or request.settings.calls is not None:
            return self
        if request.settings.has_open_arrivals:
            return replace(self, request=request.with_load(run_time=OPEN_RUN))
        calls = forecast.calls_needed(self.objectives, request.settings, request.users)
        longest = Duration.of_s(forecast.LONGEST_S)
        return replace(self, request=request.with_settings(calls=calls).with_load(run_time=longest))

    @property
    def sentence(self) -> str:
        """The speech of the callers in one sentence."""
        spoken = f"{self.utterances} utterances of {self.corpus.name} ({self.corpus.kind})"
        return f"{spoken}, profile {self.request.settings.profile_label}"

    @property
    def kept_in(self) -> str:
        """The folder of the run in one sentence: to be printed once it is known that there will be one."""
        return f"everything of this run is kept in {self.request.out}"


def check(request: RunRequest) -> CheckedRun:
    """Everything that can be wrong with a request, at once. Raises UsageError with one sentence a line."""
    # Imported when there is a run: it decodes and filters audio, which takes longer than all of `voiceprobe --help`.
    from loadtest.speech.preparation import choose

    request, objectives, faults = _without_corpus(request)
    chosen = built_in = None
    try:
        chosen = choose(request.settings)
    except CorpusError as error:
        faults += [line for line in str(error).splitlines() if line not in faults]
    if faults or chosen is None:
        raise UsageError("\n".join(faults))
    corpus, utterances = chosen
    speech_s = statistics.fmean(utterance.speech_s for utterance in utterances)
    if request.slo is None:
        built_in = built_in_objectives(_not_observable(request.settings))
        objectives = built_in.objectives
    return CheckedRun(request, corpus, len(utterances), speech_s, objectives, built_in)


def _not_observable(settings: SwarmSettings) -> Mapping[str, str]:
    """The metrics that the wire of these settings cannot show, each with the reason. Raises UsageError."""
    return registry.make_caller(settings.protocol, settings.caller_options).capabilities.not_observable


def check_without_corpus(request: RunRequest) -> None:
    """Check all but the speech, for a command that has yet to fetch it."""
    *_, faults = _without_corpus(request)
    if faults:
        raise UsageError("\n".join(faults))


def _without_corpus(request: RunRequest) -> tuple[RunRequest, list[Objective], list[str]]:
    """The request with what its scenario file says, its objectives, and all faults but those of the corpus."""
    request, faults = _with_scenario(request)
    faults += [*request.unreadable]
    faults += request.settings.faults()
    faults += _process_faults(request) or _file_faults(request)
    objectives: list[Objective] = []
    try:
        objectives = load_objectives(request.slo)
        sidecar_token()  # every run sends to one
    except ConfigError as error:
        faults += [f"{error.where}: {fault}" for fault in error.faults]
    if request.json_file is not None and (fault := unwritable(request.json_file)):
        faults.append(fault)
    if fault := unwritable_folder(request.out):
        faults.append(fault)
    return request, objectives, faults


def _with_scenario(request: RunRequest) -> tuple[RunRequest, list[str]]:
    """The request with what its scenario file says, and the faults of the file and of flags that contradict it."""
    if request.scenario is not None:
        try:
            scenario = load_scenario(request.scenario)
        except UsageError as error:
            return request, str(error).splitlines()
        request = replace(request, settings=request.settings.with_scenario(scenario, request.given))
    phases, settings = request.settings.scenario.phases, request.settings
    faults: list[str] = []
    if phases:
        useless = [name for name in ("users", "spawn_rate", "run_time") if name in request.given]
        faults = [f"{_flag(name)}: the phases of {request.scenario} say it; leave it out" for name in useless]
        most = math.ceil(max(max(phase.level_from, phase.level_to) for phase in phases))
        request = request.with_load(users=most, spawn_rate=None, run_time=Duration.of_s(phases[-1].end_s))
    elif settings.has_open_arrivals:
        useless = [name for name in ("users", "spawn_rate") if name in request.given]
        faults = [f"{_flag(name)}: not supported with --arrivals {settings.arrivals}; leave it out" for name in useless]
    if settings.has_open_arrivals:
        # Locust's users only wait: one in each process.
        processes = request.load.processes
        request = request.with_load(users=processes if isinstance(processes, int) else 1, spawn_rate=None)
    return request, faults


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _process_faults(request: RunRequest) -> list[str]:
    wanted = request.load.processes
    if not isinstance(wanted, int):
        if request.settings.has_open_arrivals:
            return [f"--processes auto: not supported with --arrivals {request.settings.arrivals}; give a number"]
        return []
    if wanted > request.users:
        return [f"--processes {wanted} is too many for {request.users} callers: each process needs one of its own"]
    if wanted > 1 and not hasattr(os, "fork"):
        return [f"--processes {wanted}: this system cannot fork; start locust --master and --worker yourself"]
    return []


def _file_faults(request: RunRequest) -> list[str]:
    """Return what is said of callers who need more open files than this system gives, before the first of them
    calls."""
    settings = request.settings
    if settings.has_open_arrivals:
        return []  # how many calls there are at the same time is what the endpoint makes of their rate
    levels = [max(phase.level_from, phase.level_to) for phase in settings.scenario.phases]
    users = math.ceil(max(levels)) if levels else request.users
    users = users if settings.calls is None else min(users, settings.calls)
    shortage = shortage_of_files(users, request.processes, most_files())
    return [] if shortage is None else [shortage]


def out_folder(out: Path | None) -> Path:
    """The folder that a command was given, or a new one."""
    if out is not None:
        return out
    from loadtest.swarm.worker import new_run_id

    return Path("runs") / new_run_id()


@contextlib.contextmanager
def sole_use_of(folder: Path) -> Generator[None]:
    """Hold the folder of a run, so that no other run writes into it meanwhile. A missing folder is made, and removed
    again if nothing is kept in it. Raises UsageError if another run holds the folder."""
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"{folder} cannot be used: {error.strerror}; name another folder with --out") from None
    try:
        _lock(descriptor, folder)
        try:
            yield
        finally:
            if is_new:
                with contextlib.suppress(OSError):  # it has the files of the run
                    folder.rmdir()
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"{folder} is in use by another run: name another folder with --out, or wait until that run has ended"
        ) from None
    except OSError:
        pass  # a network file system that locks no folder: only the lock of the store refuses the second run, later


def called_as_its_folder(settings: SwarmSettings, folder: Path, out: Path | None) -> SwarmSettings:
    """The settings of a run, which has the name of its new folder: people find one by the other. A folder that was
    given may hold an earlier run, and a run that has a name keeps it."""
    return settings if out is not None or settings.run_id else settings.replaced(run_id=folder.name)
