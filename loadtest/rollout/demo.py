"""`voiceprobe demo --rollout`: two staged rollouts on this machine, every part a process of its own on loopback.

A good change is promoted through every stage; then a change that is slow for one turn in ten is taken back. Nothing
is prepared but what the assistant's variants are: callers call, spans are stored, and the gate decides by its bounds.
"""

import shutil
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from corpora.manifest.excerpt import write_excerpt
from corpora.manifest.library import BUNDLED, open_corpus
from loadtest.errors import OutputError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.display import RolloutClock, live_rollout
from loadtest.rollout.runner import RolloutHere, RolloutRunner
from loadtest.rollout.share_changes import share_changer
from loadtest.run import processes
from loadtest.run.artifacts import keep_objectives
from loadtest.run.demo import DASHBOARD_PORT, OBJECTIVES, OTLP_GRPC_PORT, OTLP_HTTP_PORT, READY_S, stay
from loadtest.run.interruption import Interruption
from loadtest.run.job import settings_of_run, start_swarm
from loadtest.run.json_file import write_json
from loadtest.run.request import RunRequest, check, check_without_corpus
from loadtest.run.sidecars import Sidecar, launch_sidecar, wait_for_sidecar
from loadtest.scenario.behavior import parse_think
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from loadtest.swarm.worker import new_run_id
from telemetry.model.durations import Duration
from telemetry.model.formatting import declared_percent
from telemetry.objectives.slo import objectives_text
from telemetry.rollout.plan import RolloutPlan
from telemetry.sidecar.rollouts.settings import read_plan
from telemetry.store.reader import StoreReader

FILES: Final = Path(__file__).with_name("demo_files")
# The good change first; each is the name of its plan and of its candidate.
CHANGES: Final = ("fast-model", "large-model")
EXPECTED: Final = {"fast-model": ExitCode.OK, "large-model": ExitCode.OBJECTIVE_MISSED}
LOOK_EVERY_S: Final = 2.0
REPLICAS: Final = 2
CALLING_S: Final = 120.0
# Short utterances and short answers: what decides is the number of turns.
UTTERANCES: Final = 4
ASSISTANT: Final = (
    *("--asr", "scripted", "--asr-delay", "lognormal:20ms:0.2", "--asr-partial-delay", "constant:30s"),
    *("--llm-answer", "Done.", "--llm-gap", "constant:1ms", "--llm-stream", "true", "--cache", "off"),
    *("--llm-deadline", "10s"),  # what is slow is slow, and no rule answers in its place
    *("--tts", "scripted", "--tts-delay", "lognormal:30ms:0.2", "--tts-pace", "0", "--endpoint-delay", "constant:10ms"),
    *("--cohort-control", "stable", "--max-sessions", "1000"),
)
ENDPOINTING: Final = Duration.parse("200ms")
STOP_TIMEOUT: Final = Duration.parse("5s")


@dataclass(frozen=True, slots=True)
class RolloutDemoRequest:
    """The request for the demo. The run time is how long both rollouts may take together; `files` is the folder of
    its plans, flags and variants."""

    load: RunLoad
    exit_after: bool
    out: Path
    json_file: Path | None
    files: Path = FILES
    unreadable: tuple[str, ...] = ()  # see `RunRequest`


@dataclass(frozen=True, slots=True)
class DemoParts:
    """The processes of the demo."""

    sidecar: Sidecar
    dashboard: processes.Child
    callers: processes.Child


@dataclass(slots=True)
class DemoClock(RolloutClock):
    """The system's clocks. While it waits it looks whether the callers still call, and names the dashboard once."""

    parts: DemoParts
    console: Console
    _is_named: bool = field(default=False)

    def wait(self, seconds: float) -> bool:
        """See `RolloutClock`. Raises ProcessFailedError when the callers have ended."""
        deadline_s = time.monotonic() + seconds
        while True:
            self._look()
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or self.interruption.wait(min(1.0, left_s)):
                return left_s > 0

    def _look(self) -> None:
        callers, dashboard = self.parts.callers, self.parts.dashboard
        if callers.ended() is not None:
            raise processes.ProcessFailedError(
                f"the callers ended with code {callers.ended()}: {callers.last_words()} (log: {callers.log})"
            )
        if not self._is_named and dashboard.ready:
            self._is_named = True
            self.console.print(f"dashboard: {dashboard.ready['url']}", soft_wrap=True)


@dataclass(frozen=True, slots=True)
class DemoRollout:
    """The course of one rollout of the demo."""

    name: str
    code: ExitCode
    lasted_s: float
    sentence: str
    stages: tuple[str, ...]

    @property
    def is_as_expected(self) -> bool:
        """Whether the good change was promoted, or the bad one taken back."""
        return self.code is EXPECTED[self.name]

    @property
    def line(self) -> str:
        """The line that is printed."""
        ends = {
            ExitCode.OK: "promoted through every stage",
            ExitCode.OBJECTIVE_MISSED: "taken back",
            ExitCode.INTERRUPTED: "interrupted",
        }
        end = ends.get(self.code, "not decided in this time")
        return f"{self.name}: {end} after {self.lasted_s:.0f} s ({', '.join(self.stages)}). {self.sentence}"


def demo_rollout(request: RolloutDemoRequest, console: Console) -> ExitCode:
    """Run the demo. Raises UsageError, CorpusError, OutputError, StoreError, ProcessFailedError."""
    check_without_corpus(_asked(request))
    plans = _lay_out(request)
    for line in _promises(plans, request):
        console.print(line, soft_wrap=True, highlight=False)
    with ExitStack() as stack:
        parts = _start_parts(request, stack)
        interruption = stack.enter_context(Interruption())
        clock = DemoClock(interruption, parts, console)
        _wait_for_callers(parts.sidecar.store, request.load.users or 1, clock)
        began_s, longest_s = time.monotonic(), _asked(request).run_time_s or 0.0
        rollouts: list[DemoRollout] = []
        for file, plan in plans:
            left_s = longest_s - (time.monotonic() - began_s)
            rollouts.append(_carry(file, plan, parts.sidecar.store, clock, left_s))
            console.print(rollouts[-1].line, soft_wrap=True, highlight=False)
            if not rollouts[-1].is_as_expected:
                break
        lasted_s = time.monotonic() - began_s
        code = _ending(rollouts, lasted_s, console)
        if request.json_file is not None:
            write_json(request.json_file, _object(rollouts, lasted_s))
        if not request.exit_after and code is not ExitCode.INTERRUPTED:
            stay(str(processes.wait_until_ready(parts.dashboard, READY_S)["url"]), console)
    return code


def _asked(request: RolloutDemoRequest) -> RunRequest:
    """Return what the flags say, to be checked before anything is started; it calls nobody."""
    return RunRequest(
        SwarmSettings(host="ws://127.0.0.1:1"),
        request.load,
        OBJECTIVES,
        request.out,
        request.json_file,
        unreadable=request.unreadable,
    )


def _lay_out(request: RolloutDemoRequest) -> list[tuple[Path, RolloutPlan]]:
    """The plans, the flags and what the variants are, as files to look at and to change."""
    out, folder = request.out, request.out / "rollout"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(request.files.iterdir()):
            if file.suffix in (".json", ".toml"):
                shutil.copyfile(file, folder / file.name)
        corpus = open_corpus(BUNDLED)
        by_length = sorted(
            corpus.utterances, key=lambda utterance: utterance.speech_end_sample / utterance.sample_rate_hz
        )
        write_excerpt(corpus, by_length[:UTTERANCES], out / "corpus")
    except OSError as error:
        raise OutputError(f"{folder} could not be written: {error.strerror}; make room or name another place") from None
    return [(file, read_plan(file, [])[0]) for file in (folder / f"{name}.toml" for name in CHANGES)]


def _promises(plans: list[tuple[Path, RolloutPlan]], request: RolloutDemoRequest) -> list[str]:
    """Return what is asked of both rollouts, and what of it is smaller than where people call."""
    plan = plans[0][1]
    stated = (check for check in plan.checks if not check.is_optional)
    margins = ", ".join(f"{check.sentence} {check.format_margin()}" for check in stated)
    stages = " -> ".join(declared_percent(stage.share) for stage in plan.stages)
    shortest = ", ".join(dict.fromkeys(str(stage.shortest) for stage in plan.stages if stage.has_control))
    first = declared_percent(plan.stages[0].share)
    limits, (good, bad) = plan.completeness, CHANGES
    return [
        f"two rollouts of {stages} of the calls, {request.load.users} callers: {good} answers sooner, {bad} as soon, "
        "but one turn in ten seconds later, so that it has to be taken back",
        f"compressed: a stage lasts {shortest} at least instead of hours or days; the first gets {first} of the calls "
        "instead of 1 % or 5 %; callers say a word or two and call again at once; and the margins are wide: "
        f"{margins}",
        f"not compressed: the error level is {declared_percent(plan.error_level)}, and every part is a process of its "
        f"own; at most {declared_percent(limits.invalid_turns)} of the turns may be invalid and "
        f"{declared_percent(limits.telemetry_loss)} on their way",
        f"plans, flags and variants: {request.out / 'rollout'}",
    ]


def _start_parts(request: RolloutDemoRequest, stack: ExitStack) -> DemoParts:
    logs, store, folder = request.out / "logs", request.out / "store", request.out / "rollout"
    http_port, dashboard_port = processes.free_port(OTLP_HTTP_PORT), processes.free_port(DASHBOARD_PORT)
    grpc_port = processes.free_port(OTLP_GRPC_PORT)
    keep_objectives(request.out, objectives_text(OBJECTIVES))  # a later report of the store judges by them, too
    sidecar = launch_sidecar(store, logs, slo=OBJECTIVES, http_port=http_port, grpc_port=grpc_port)
    stack.enter_context(processes.ending(sidecar))
    port = str(processes.free_port())
    given = ("--port", port, "--share-port", "true", "--otlp", f"http://127.0.0.1:{http_port}")
    speech = ("--corpus", str(request.out / "corpus"))
    files = ("--flags", str(folder / "flags.json"), "--variants", str(folder / "variants.toml"))
    # Two replicas on one port, which read the same file of flags.
    assistants = [
        processes.start_assistant(stack, logs, *given, *speech, *ASSISTANT, *files, name=f"assistant-{number}")
        for number in range(1, REPLICAS + 1)
    ]
    page = ("--store", str(store), "--port", str(dashboard_port), "--slo", str(OBJECTIVES), "--headless")
    dashboard = processes.start("dashboard", ["-m", "dashboard", *page], logs, says_ready=True)
    stack.enter_context(processes.ending(dashboard))
    ready = wait_for_sidecar(sidecar)
    (target,) = {str(processes.wait_until_ready(assistant, READY_S)["url"]) for assistant in assistants}
    callers = _start_callers(request, target, ready.url)
    stack.enter_context(processes.ending(callers))
    return DemoParts(ready, dashboard, callers)


def _start_callers(request: RolloutDemoRequest, target: str, sidecar_url: str) -> processes.Child:
    settings = SwarmSettings(
        host=target,
        corpus=str(request.out / "corpus"),
        turns=2,
        think=parse_think(0.1),
        endpointing=ENDPOINTING,
        scenario_name="demo-rollout",
    )
    # Its end is the end of the demo.
    endless = request.load.model_copy(update={"run_time": None, "stop_timeout": STOP_TIMEOUT})
    checked = check(RunRequest(settings, endless, OBJECTIVES, request.out / "calls", None))
    return start_swarm(checked.request, settings_of_run(checked, new_run_id(), sidecar_url))


def _wait_for_callers(store: Path, users: int, clock: DemoClock) -> None:
    """Wait until about every caller was answered: the start of processes must not cost the first stage turns."""
    deadline_s = clock.monotonic_s() + CALLING_S
    with StoreReader(store) as reader:
        while reader.summary().turns.total < users and clock.monotonic_s() < deadline_s:
            if clock.wait(1.0):
                raise processes.ProcessFailedError("interrupted before the first rollout began")


def _carry(file: Path, plan: RolloutPlan, store: Path, clock: DemoClock, at_most_s: float) -> DemoRollout:
    began_s = clock.monotonic_s()
    with ExitStack() as stack:
        reader = stack.enter_context(StoreReader(store))
        rollout = RolloutHere([(plan.name, file)], store, reader, [], unix_ns=clock.unix_ns, every_s=LOOK_EVERY_S)
        stack.enter_context(closing(rollout))
        view = stack.enter_context(live_rollout(plan, clock.console, clock.unix_ns))
        runner = RolloutRunner(plan, rollout, share_changer(plan, file), clock, view, LOOK_EVERY_S)
        code = runner.run(max(1.0, at_most_s))
        record = next(record for record in reader.rollouts() if record.name == plan.name)
    last = {verdict.stage: verdict.look for verdict in record.verdicts}
    stages = tuple(f"{name}: {look.candidate_turns} and {look.control_turns} turns" for name, look in last.items())
    sentence = record.verdicts[-1].verdict.sentence if record.verdicts else ""
    return DemoRollout(plan.name, code, clock.monotonic_s() - began_s, sentence, stages)


def _ending(rollouts: list[DemoRollout], lasted_s: float, console: Console) -> ExitCode:
    if any(rollout.code is ExitCode.INTERRUPTED for rollout in rollouts):
        return ExitCode.INTERRUPTED
    if len(rollouts) == len(CHANGES) and all(rollout.is_as_expected for rollout in rollouts):
        console.print(f"both rollouts were decided in {lasted_s:.0f} s", soft_wrap=True, highlight=False)
        return ExitCode.OK
    console.print(
        "this machine did not get the turns that a decision needs: the last verdict says what it waits for; "
        "give it more time with --run-time, or another load with --users",
        soft_wrap=True,
    )
    return ExitCode.UNDECIDED


def _object(rollouts: list[DemoRollout], lasted_s: float) -> dict[str, Any]:
    return {
        "lasted_s": lasted_s,
        "rollouts": [
            {
                "name": rollout.name,
                "exit_code": int(rollout.code),
                "lasted_s": rollout.lasted_s,
                "sentence": rollout.sentence,
                "stages": list(rollout.stages),
            }
            for rollout in rollouts
        ],
    }
