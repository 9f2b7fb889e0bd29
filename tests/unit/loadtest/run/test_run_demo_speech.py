"""The demo's choice of a corpus, and its sentence on it; nothing is downloaded."""

import io
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from corpora.manifest.library import open_corpus
from loadtest.run.demo import INSTALL_TIMEOUT_S, RECORDED, DemoRequest, demo
from loadtest.run.request import RunRequest
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration

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
