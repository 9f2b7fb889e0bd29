"""The environment of real models: refusals before anything is downloaded, and half-installed ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.errors import UsageError
from loadtest.targets.assistant.real import environment


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VOICEPROBE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _as_installed(done: subprocess.CompletedProcess[str], monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return done

    monkeypatch.setattr(environment.subprocess, "run", run)
    return commands


def test_too_little_disk_is_one_sentence_and_nothing_is_begun(cache: Path) -> None:
    texts: list[str] = []
    with pytest.raises(UsageError, match=r"need 1\.9 GB in .* and 0\.5 GB are free; free some, or name another folder"):
        environment.install(texts.append, free_mb=lambda _: 500)
    assert texts == []
    assert not environment.environment_folder().exists()


def test_too_little_memory_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"need 1\.5 GB of memory, and 0\.9 GB are available"):
        environment.check_memory(900)
    environment.check_memory(1_600)


def test_size_is_shown_first_and_second_install_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = _as_installed(subprocess.CompletedProcess([], 0, "", ""), monkeypatch)
    texts: list[str] = []
    environment.install(texts.append)
    environment.install(texts.append)
    assert len(texts) == 1
    assert "950 MB" in texts[0]
    (command,) = (command for command in commands if "install" in command)
    assert {"--no-deps", "--require-hashes", str(environment.LOCK)} <= set(command)


def test_a_failed_installation_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "error: no route to the index\n")
    _as_installed(failed, monkeypatch)
    with pytest.raises(UsageError, match=r"could not be installed .error: no route to the index."):
        environment.install(print)
    assert not environment.is_installed()
    _as_installed(subprocess.CompletedProcess([], 0, "", ""), monkeypatch)
    environment.install(print)
    assert environment.is_installed()


def test_a_folder_that_cannot_be_written_is_one_sentence(cache: Path) -> None:
    cache.write_text("no folder")
    with pytest.raises(UsageError, match=r"cannot be installed into .* name another folder in VOICEPROBE_CACHE"):
        environment.install(print)


def test_program_imports_this_package_after_its_environment() -> None:
    python, dash_c, program, *arguments = environment.command("loadtest.exit_codes", "1")
    assert python.endswith("bin/python")
    line = [sys.executable, dash_c, f"{program}; print(sys.path[-1])", *arguments]
    done = subprocess.check_output(line, cwd="/", text=True)
    assert Path(done.strip()) == Path(environment.__file__).parents[4]
