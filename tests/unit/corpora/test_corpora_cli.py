"""Tests of the command `voiceprobe corpus`: its output for scripts and people, and its exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from corpora.rendering.cache import open_cache_entry
from tests.unit.corpora.conftest import Ran, Workshop

Command = Callable[..., Ran]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "corpora", *arguments]
    # Without a terminal, COLUMNS determines the width of the tables.
    variables = {**os.environ, "COLUMNS": "160", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=variables)


@pytest.mark.slow
def test_list_as_json_for_scripts(tmp_path: Path) -> None:
    completed = run("list", "--json", VOICEPROBE_HOME=str(tmp_path))
    assert (completed.returncode, completed.stderr) == (0, "")
    (english,) = json.loads(completed.stdout)
    assert (english["name"], english["kind"], english["fault"]) == ("voiceprobe-en", "generated", None)
    assert english["utterances"] == english["short"] + english["medium"] + english["long"] >= 48
    assert english["licenses"] == ["CC0-1.0"]
    assert len(english["speakers"]) == 4
    assert english["speech_s"] > 100


def test_list_for_people(home: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    broken = home / "corpora" / "broken"
    broken.mkdir(parents=True)
    (broken / "manifest.jsonl").write_text("[]")
    ran = command("list")
    assert ran.code == 0
    for part in ("voiceprobe-en", "generated", "CC0-1.0", "min", "broken", "cannot be used"):
        assert part in ran.out
    assert "Not installed: recorded-en, 77 utterances by four speakers in twelve domains" in ran.out
    assert "Not installed: pocketsphinx-testdata" in ran.out


def test_check_prints_one_line_per_fault(workshop: Workshop, command: Command) -> None:
    for seed, name in enumerate(("a", "b", "c")):
        workshop.add(name, seed=seed)
    folder = workshop.save()
    ran = command("check", folder)
    assert (ran.code, ran.out) == (0, f"{folder}: 3 utterances, no faults found\n")
    (folder / "clips/a.flac").unlink()
    (folder / "clips/b.flac").write_bytes(b"")
    ran = command("check", folder)
    assert ran.code == 2
    first, second = ran.out.splitlines()
    assert "is missing" in first
    assert "is empty" in second


@pytest.mark.slow
def test_an_unknown_corpus_is_one_sentence_and_exits_with_two(tmp_path: Path) -> None:
    completed = run("install", "unknown", VOICEPROBE_HOME=str(tmp_path))
    assert completed.returncode == 2
    assert completed.stdout == ""
    assert completed.stderr.startswith("The corpus 'unknown' is unknown; use one of ")
    assert "Traceback" not in completed.stderr


def test_a_failed_download_is_one_sentence_and_exits_with_two(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = command("install", "pocketsphinx-testdata")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("check",), ("install",)])
def test_wrong_usage_exits_with_two(command: Command, arguments: tuple[str, ...]) -> None:
    assert command(*arguments).code == 2


@pytest.mark.parametrize("arguments", [(), ("list",), ("install",), ("build",), ("check",)])
def test_help_has_an_example(monkeypatch: pytest.MonkeyPatch, command: Command, arguments: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    ran = command(*arguments, "--help")
    assert ran.code == 0
    assert "Example" in ran.out
    assert "voiceprobe corpus" in ran.out


def test_the_cache_is_shown_and_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setenv("VOICEPROBE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("VOICEPROBE_CACHE_GB", "2.5")
    with open_cache_entry("a" * 32).writer() as pack:
        pack.add("one", None, bytes(2_000_000))
    assert command("cache") == Ran(0, f"{tmp_path / 'cache'}: 2.0 MB in 1 entry, at most 2.5 GB\n", "")
    assert command("cache", "--clear") == Ran(0, f"{tmp_path / 'cache'}: 2.0 MB removed\n", "")
    assert not list((tmp_path / "cache").glob("*/*"))
    monkeypatch.setenv("VOICEPROBE_CACHE_GB", "lots")
    ran = command("cache")
    assert ran.code == 2
    assert "VOICEPROBE_CACHE_GB='lots' is no size" in ran.err
