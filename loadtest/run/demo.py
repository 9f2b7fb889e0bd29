"""`voiceprobe demo`: the whole way on this machine, every part a process of its own on loopback."""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console

from corpora.manifest.library import BUNDLED, available
from loadtest.exit_codes import ExitCode
from loadtest.run import processes
from loadtest.run.interruption import Interruption
from loadtest.run.job import run
from loadtest.run.judged_run import print_and_write
from loadtest.run.request import CheckedRun, RunRequest, check, check_without_corpus, sole_use_of
from loadtest.run.sidecars import Sidecar, launch_sidecar, wait_for_sidecar
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from loadtest.targets.assistant.real import environment
from telemetry.model.durations import Duration

RECORDED: Final = ("recorded-en", "pocketsphinx-testdata")  # the second where the first cannot be had
INSTALL_TIMEOUT_S: Final = 120.0
READY_S: Final = 60.0
ASSISTANT_PORT: Final = 8765
DASHBOARD_PORT: Final = 8501
OTLP_HTTP_PORT: Final = 4318
OTLP_GRPC_PORT: Final = 4317
ENDPOINTING: Final = Duration.parse("300ms")
OBJECTIVES: Final = Path(__file__).with_name("demo-objectives.yaml")

# What the assistant of the demo is like: stated here, drawn with a seed, reported by it turn by turn.
SCRIPTED: Final = (
    *("--asr", "scripted", "--asr-delay", "lognormal:40ms:0.3"),
    *("--llm-ttft", "lognormal:90ms:0.3;tail=0.03:3s", "--llm-gap", "lognormal:6ms:0.4", "--llm-deadline", "300ms"),
    *("--tts", "scripted", "--tts-delay", "lognormal:50ms:0.3"),
)
REAL: Final = ("--engines", "real", "--llm-deadline", "2s")
COMMON: Final = ("--cohort", "streaming=0.5", "--cohort-control", "whole-answer", "--llm-stream", "false")
CACHE_TTL: Final = Duration.parse("20s")
# What a part says of a port that it cannot have, in the end of its log.
_REFUSED_PORT: Final = re.compile(r"cannot listen on \S+:(\d+)")


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """The request for the demo."""

    load: RunLoad
    exit_after: bool
    engines: str
    settings: SwarmSettings  # from flags; the demo sets the rest
    slo: Path | None
    out: Path
    json_file: Path | None
    unreadable: tuple[str, ...] = ()  # see `RunRequest`


def demo(request: DemoRequest, console: Console) -> ExitCode:
    """Run the demo. Raises UsageError, CorpusError, ProcessFailedError."""
    unreadable = request.unreadable
    if request.engines not in ("scripted", "real"):
        unreadable = (*unreadable, f"--engines {request.engines!r} is unknown: use scripted or real")
    settings = request.settings.replaced(
        host=f"ws://127.0.0.1:{ASSISTANT_PORT}/v1/realtime",
        think=0.4,
        patience=6.0,
        endpointing=ENDPOINTING,
        scenario_name="demo",
    )
    asked = RunRequest(
        settings,
        request.load.model_copy(update={"spawn_rate": float(request.load.users or 1)}),
        request.slo or OBJECTIVES,
        request.out,
        request.json_file,
        unreadable=unreadable,
    )
    if settings.corpus is None:
        check_without_corpus(asked)  # before speech is fetched
        # A model is to be asked questions, which the generated speech has and the recorded one has not.
        asked = asked.with_settings(corpus=BUNDLED if request.engines == "real" else _speech(console))
    checked = check(asked)
    if request.engines == "real":
        environment.prepare(lambda text: console.print(text, soft_wrap=True))
    console.print(f"{checked.sentence}; {checked.kept_in}", soft_wrap=not console.is_terminal)
    with ExitStack() as stack:
        stack.enter_context(sole_use_of(request.out))
        parts = _start_parts(request, checked, stack)
        addresses: list[str] = []

        def watch() -> None:
            # The callers do not wait for the dashboard: its address is given as soon as it answers.
            if not addresses and parts.dashboard.ready_or_ended.is_set():
                addresses.append(_address(parts))
                console.print(f"dashboard: {addresses[0]}", soft_wrap=True)

        placed = replace(checked, request=asked.with_settings(host=parts.target))
        result = run(placed, console, sidecar=parts.sidecar, dashboard_url=parts.dashboard_url, watch=watch)
        code = print_and_write(result, console, request.json_file)
        if not request.exit_after and code is not ExitCode.INTERRUPTED:
            for bystander in parts.bystanders:
                bystander.stop_yielding(parts.niceness)
            stay(_address(parts), console)
    return code


@dataclass(frozen=True, slots=True)
class Parts:
    """The processes that the demo runs in addition to its callers."""

    sidecar: Sidecar
    target: str
    dashboard: processes.Child
    dashboard_url: str
    bystanders: tuple[processes.Child, ...]  # they yield the processor while callers speak
    niceness: int  # of the others


def _start_parts(request: DemoRequest, checked: CheckedRun, stack: ExitStack) -> Parts:
    """Start all parts at once, on addresses chosen beforehand; wait for those that the callers need."""
    logs, store, slo = request.out / "logs", request.out / "store", checked.request.slo
    http_port, dashboard_port = processes.free_port(OTLP_HTTP_PORT), processes.free_port(DASHBOARD_PORT)
    grpc_port, assistant_port = processes.free_port(OTLP_GRPC_PORT), processes.free_port(ASSISTANT_PORT)
    sidecar = launch_sidecar(store, logs, slo=slo, http_port=http_port, grpc_port=grpc_port)
    stack.enter_context(processes.ending(sidecar))
    engines = SCRIPTED if request.engines == "scripted" else REAL
    corpus = ["--corpus", str(checked.corpus.path)] if request.engines == "scripted" else []
    given = ("--port", str(assistant_port), "--otlp", f"http://127.0.0.1:{http_port}", "--cache-ttl", str(CACHE_TTL))
    assistant = processes.start_assistant(stack, logs, *given, *engines, *COMMON, *corpus)
    # It reads the store, which the sidecar makes: it waits for it by itself.
    dashboard = processes.start(
        "dashboard",
        ["-m", "dashboard", "--store", str(store), "--port", str(dashboard_port), "--slo", str(slo), "--headless"],
        logs,
        says_ready=True,
    )
    stack.enter_context(processes.ending(dashboard))
    with _naming_taken_ports("sidecar", http_port, grpc_port):
        ready = wait_for_sidecar(sidecar)
    with _naming_taken_ports("assistant", assistant_port):
        target = str(processes.wait_until_ready(assistant, READY_S)["url"])
    niceness = os.getpriority(os.PRIO_PROCESS, assistant.process.pid)
    return Parts(ready, target, dashboard, f"http://127.0.0.1:{dashboard_port}", (sidecar, dashboard), niceness)


@contextmanager
def _naming_taken_ports(name: str, *ports: int) -> Generator[None]:
    """Report that a part did not start because its port was taken after it was chosen; raises
    ProcessFailedError."""
    try:
        yield
    except processes.ProcessFailedError as error:
        # It may be free once more: another demo that took it has lost a port of its own, and ended.
        refused = {int(port) for port in _REFUSED_PORT.findall(str(error))}
        taken = [port for port in ports if port in refused or not processes.is_free(port)]
        if not taken:
            raise
        raise processes.ProcessFailedError(
            f"port {taken[0]} for the {name} was free a moment ago and is taken now, by another demo perhaps: start "
            "the demo again, it takes another port then"
        ) from error


def _address(parts: Parts) -> str:
    with _naming_taken_ports("dashboard", int(parts.dashboard_url.rpartition(":")[2])):
        return str(processes.wait_until_ready(parts.dashboard, READY_S)["url"])


def _speech(console: Console) -> str:
    """Choose the corpus: recorded human speech if it is installed or can be, otherwise generated speech; says so."""
    faults = {info.name: info.fault for info in available()}
    reason = ""
    for name in RECORDED:
        if name in faults and faults[name] is None:
            fault = None
        else:
            console.print(f"fetching recorded human speech ({name}) …")
            try:
                with console.status("downloading and preparing the clips"):  # only on a terminal
                    fault = _install(name, again=name in faults)
            except subprocess.TimeoutExpired:
                reason = reason or f"it took longer than {INSTALL_TIMEOUT_S:g} s"
                break  # the next one would wait as long for the same network
        if fault is None:
            if reason:
                console.print(f"the corpus is {name}, because {RECORDED[0]} cannot be had: {reason}", soft_wrap=True)
            return name
        reason = reason or fault
    console.print(
        f"the speech is generated ({BUNDLED}), because recorded human speech cannot be had: {reason}", soft_wrap=True
    )
    return BUNDLED


def _install(name: str, *, again: bool) -> str | None:
    """Install a corpus, over a broken one if `again`; returns None if that succeeded, otherwise the reason.

    Raises TimeoutExpired.
    """
    done = subprocess.run(
        [sys.executable, "-m", "corpora", "install", name, *(["--force"] if again else [])],
        env=processes.environment(),
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1].rstrip(".") if lines else f"installing it ended with code {done.returncode}"


def stay(dashboard: str, console: Console) -> None:
    """Keep what was started until somebody interrupts it."""
    console.print(f"the dashboard stays at {dashboard} until Ctrl-C", soft_wrap=True)
    with Interruption() as interruption:
        while not interruption.wait(None):
            pass
