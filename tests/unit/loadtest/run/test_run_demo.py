"""The demo's choice of a corpus, and the priorities of its processes; nothing is downloaded or started."""

import io
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from corpora.manifest.library import open_corpus
from loadtest.exit_codes import ExitCode
from loadtest.run import processes
from loadtest.run.demo import INSTALL_TIMEOUT_S, OBJECTIVES, RECORDED, DemoRequest, demo
from loadtest.run.processes import ProcessFailedError
from loadtest.run.request import RunRequest
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


OFFLINE = "recorded-en: the Debian package x could not be downloaded (apt-get: no network); go online.\n"
Installer = Callable[[str], subprocess.CompletedProcess[str]]


class ChosenError(Exception):
    """Ends the demo when its corpus is known."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VOICEPROBE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "corpora"


def place(home: Path, name: str, *, intact: bool = True) -> None:
    """Install a corpus by that name: the bundled clips, or a manifest that cannot be read."""
    bundled = open_corpus("voiceprobe-en").path
    (home / name).mkdir(parents=True)
    (home / name / "clips").symlink_to(bundled / "clips")
    text = (bundled / "manifest.jsonl").read_text().replace('"voiceprobe-en"', f'"{name}"', 1)
    (home / name / "manifest.jsonl").write_text(text if intact else "rubbish")


def choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, install: Installer) -> tuple[str | None, str, list[str]]:
    """Return the corpus of a demo, what was printed, and the arguments of each installation."""
    asked: list[str] = []
    corpora: list[str | None] = []

    def run(command: Sequence[str], *, timeout: float, **_: object) -> subprocess.CompletedProcess[str]:
        assert list(command[1:4]) == ["-m", "corpora", "install"]
        assert timeout == INSTALL_TIMEOUT_S
        asked.append(" ".join(command[4:]))
        return install(command[4])

    def check(request: RunRequest) -> None:
        corpora.append(request.settings.corpus)
        raise ChosenError

    monkeypatch.setattr("loadtest.run.demo.subprocess.run", run)
    monkeypatch.setattr("loadtest.run.demo.check", check)
    printed = io.StringIO()
    request = DemoRequest(
        RunLoad(users=2, run_time=Duration.of_s(5)), True, "scripted", SwarmSettings(), None, tmp_path / "out", None
    )
    with pytest.raises(ChosenError):
        demo(request, Console(file=printed))
    return corpora[0], printed.getvalue(), asked


def done(code: int, stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, "", stderr)


def fail(_name: str) -> subprocess.CompletedProcess[str]:
    return done(2, OFFLINE)


def test_an_installed_corpus_is_used_without_a_word(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(home, "recorded-en")
    assert choose(monkeypatch, tmp_path, fail) == ("recorded-en", "", [])


def test_the_first_demo_installs_the_corpus(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, printed, asked = choose(monkeypatch, tmp_path, lambda _name: done(0))
    assert (corpus, asked) == ("recorded-en", ["recorded-en"])
    assert printed == "fetching recorded human speech (recorded-en) …\n"


def test_a_broken_corpus_is_replaced(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(home, "recorded-en", intact=False)
    corpus, _, asked = choose(monkeypatch, tmp_path, lambda _name: done(0))
    assert (corpus, asked) == ("recorded-en", ["recorded-en --force"])


@pytest.mark.parametrize("installed", [True, False])
def test_fewer_human_clips_come_before_generated_ones(
    installed: bool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        place(home, "pocketsphinx-testdata")
    corpus, printed, asked = choose(
        monkeypatch, tmp_path, lambda name: fail(name) if name == "recorded-en" or installed else done(0)
    )
    assert corpus == "pocketsphinx-testdata"
    assert asked == ["recorded-en"] if installed else [*RECORDED]
    assert printed.splitlines()[-1] == (
        "the corpus is pocketsphinx-testdata, because recorded-en cannot be had: " + OFFLINE.rstrip(".\n")
    )


def test_generated_speech_replaces_missing_package_with_reason(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, printed, asked = choose(
        monkeypatch, tmp_path, lambda name: fail(name) if name == "recorded-en" else done(2, "another reason\n")
    )
    assert (corpus, asked) == ("voiceprobe-en", [*RECORDED])
    assert printed.splitlines()[-1] == (
        "the speech is generated (voiceprobe-en), because recorded human speech cannot be had: " + OFFLINE.rstrip(".\n")
    )


def test_hanging_installation_is_abandoned_without_second_try(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(_name: str) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired([], INSTALL_TIMEOUT_S)

    corpus, printed, asked = choose(monkeypatch, tmp_path, hang)
    assert (corpus, asked) == ("voiceprobe-en", ["recorded-en"])
    assert printed.endswith("cannot be had: it took longer than 120 s\n")


def test_silent_failed_installation_is_named_by_its_exit_code(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, printed, _ = choose(monkeypatch, tmp_path, lambda _name: done(-9))
    assert printed.endswith("cannot be had: installing it ended with code -9\n")
