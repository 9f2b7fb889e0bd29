"""Priorities of the demo's processes while callers speak; no process is started."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from loadtest.exit_codes import ExitCode
from loadtest.run import processes
from loadtest.run.demo import OBJECTIVES, DemoRequest, demo
from loadtest.run.processes import ProcessFailedError
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import judge, load_objectives

ADDRESS = "http://127.0.0.1:1"


@dataclass
class RecordedPart:
    """Stands for a process of the demo; what happens to it is written down."""

    name: str
    happened: list[str]
    process: Any = field(default_factory=lambda: SimpleNamespace(pid=os.getpid()))
    ready_or_ended: Event = field(default_factory=Event)

    def stop_yielding(self, niceness: int) -> None:
        self.happened.append(f"{self.name} yields no longer, at {niceness}")

    def end(self) -> None:
        self.happened.append(f"{self.name} ends")


@dataclass
class RecordedDemo:
    """A demo without processes: what happened in it, and who was started as a bystander."""

    code: ExitCode = ExitCode.OK
    happened: list[str] = field(default_factory=list)
    is_bystander: dict[str, bool] = field(default_factory=dict)

    # `processes.start`, with its own default: a caller that says nothing gets a bystander.
    def start(
        self, name: str, _arguments: Sequence[str], _logs: Path, *, bystander: bool = True, **_given: object
    ) -> RecordedPart:
        self.is_bystander[name] = bystander
        return RecordedPart(name, self.happened)

    def run(self, *_given: object, **_named: object) -> None:
        self.happened.append("callers speak")

    def print_and_write(self, *_given: object) -> ExitCode:
        return self.code

    def stay(self, *_given: object) -> None:
        self.happened.append("the demo stays")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> RecordedDemo:
    recorded_demo = RecordedDemo()

    def ready(*_given: object) -> dict[str, object]:
        return {"url": ADDRESS, "http": ADDRESS, "store": "store"}

    monkeypatch.setattr("loadtest.run.processes.start", recorded_demo.start)
    monkeypatch.setattr("loadtest.run.processes.wait_until_ready", ready)
    for name in ("run", "print_and_write", "stay"):
        monkeypatch.setattr(f"loadtest.run.demo.{name}", getattr(recorded_demo, name))
    return recorded_demo


def carry_out(out: Path, *, exit_after: bool) -> ExitCode:
    settings = SwarmSettings(corpus="voiceprobe-en")
    request = DemoRequest(
        RunLoad(users=2, run_time=Duration.of_s(5)), exit_after, "scripted", settings, None, out, None
    )
    return demo(request, Console(quiet=True))


def test_sidecar_and_dashboard_yield_processor_but_not_assistant(recorded: RecordedDemo, tmp_path: Path) -> None:
    assert carry_out(tmp_path / "out", exit_after=True) is ExitCode.OK
    assert recorded.is_bystander == {"sidecar": True, "assistant": False, "dashboard": True}


ENDS = ["dashboard ends", "assistant ends", "sidecar ends"]


def test_bystanders_get_normal_priority_once_demo_only_stays(recorded: RecordedDemo, tmp_path: Path) -> None:
    carry_out(tmp_path / "out", exit_after=False)
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    freed = [f"{name} yields no longer, at {niceness}" for name in ("sidecar", "dashboard")]
    assert recorded.happened == ["callers speak", *freed, "the demo stays", *ENDS]


@pytest.mark.parametrize(("exit_after", "code"), [(True, ExitCode.OK), (False, ExitCode.INTERRUPTED)])
def test_a_demo_that_does_not_stay_leaves_them_as_they_are(
    exit_after: bool, code: ExitCode, recorded: RecordedDemo, tmp_path: Path
) -> None:
    recorded.code = code
    assert carry_out(tmp_path / "out", exit_after=exit_after) is code
    assert recorded.happened == ["callers speak", *ENDS]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("sidecar", "--grpc-port: cannot listen on 127.0.0.1:{}; free the port"),
        ("assistant", "The assistant cannot listen on 127.0.0.1:{} (Address already in use); choose another --port."),
    ],
)
def test_port_that_was_taken_is_reported_even_if_free_again(
    part: str, words: str, recorded: RecordedDemo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports: list[int] = []
    chosen = processes.free_port

    def free_port(_preferred: int | None = None) -> int:
        ports.append(chosen())
        return ports[-1]

    def ended(child: RecordedPart, _within_s: float) -> dict[str, object]:
        if child.name == part:
            raise ProcessFailedError(f"the {part} ended with code 2: {words.format(lost())} (log: x.log)")
        return {"url": ADDRESS, "http": ADDRESS, "store": "store"}

    def lost() -> int:
        return ports[2] if part == "sidecar" else ports[3]

    monkeypatch.setattr("loadtest.run.processes.free_port", free_port)
    monkeypatch.setattr("loadtest.run.processes.wait_until_ready", ended)
    with pytest.raises(ProcessFailedError) as failed:
        carry_out(tmp_path / "out", exit_after=True)
    assert str(failed.value) == (
        f"port {lost()} for the {part} was free a moment ago and is taken now, by another demo perhaps: start the demo "
        "again, it takes another port then"
    )
    assert recorded.happened == ENDS, "what had begun ends"


def test_a_part_that_fails_for_another_reason_says_its_own(
    recorded: RecordedDemo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(_child: RecordedPart, _within_s: float) -> dict[str, object]:
        raise ProcessFailedError("the sidecar ended with code 1: cannot listen to anybody (log: x.log)")

    monkeypatch.setattr("loadtest.run.processes.wait_until_ready", ended)
    with pytest.raises(ProcessFailedError, match=r"^the sidecar ended with code 1: cannot listen to anybody"):
        carry_out(tmp_path / "out", exit_after=True)


def test_demo_objectives_are_met_with_ten_of_hundred_turns_open() -> None:
    objectives = load_objectives(OBJECTIVES)
    counts = EligibleTurns(90, 100, {"generator": 10})
    assert len(objectives) == 6
    assert [verdict.met for verdict in judge(objectives, lambda _objective: counts)] == [True] * 6
