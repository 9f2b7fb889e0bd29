"""Tests of the command `voiceprobe corpus`: its output for scripts and people, and its exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corpora.cli import main
from corpora.rendering.cache import open_cache_entry


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "corpora", *arguments]
    # Without a terminal, COLUMNS determines the width of the tables.
    variables = {**os.environ, "COLUMNS": "160", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=variables)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["corpora", *arguments])
    with pytest.raises(SystemExit) as completed:
        main()
    return int(completed.value.code or 0)


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


def test_list_for_people(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    broken = home / "corpora" / "broken"
    broken.mkdir(parents=True)
    (broken / "manifest.jsonl").write_text("[]")
    assert call(monkeypatch, "list") == 0
    shown = capsys.readouterr().out
    for part in ("voiceprobe-en", "generated", "CC0-1.0", "min", "broken", "cannot be used"):
        assert part in shown
    assert "Not installed: recorded-en, 77 utterances by four speakers in twelve domains" in shown
    assert "Not installed: pocketsphinx-testdata" in shown


def test_check_prints_one_line_per_fault(
    workshop: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, name in enumerate(("a", "b", "c")):
        workshop.add(name, seed=seed)
    folder = workshop.save()
    assert call(monkeypatch, "check", str(folder)) == 0
    assert "3 utterances, no faults found" in capsys.readouterr().out
    (folder / "clips/a.flac").unlink()
    (folder / "clips/b.flac").write_bytes(b"")
    assert call(monkeypatch, "check", str(folder)) == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "is missing" in lines[0]
    assert "is empty" in lines[1]


@pytest.mark.slow
def test_an_unknown_corpus_is_one_sentence_and_exits_with_two(tmp_path: Path) -> None:
    completed = run("install", "unknown", VOICEPROBE_HOME=str(tmp_path))
    assert completed.returncode == 2
    assert completed.stdout == ""
    assert completed.stderr.startswith("The corpus 'unknown' is unknown; use one of ")
    assert "Traceback" not in completed.stderr


def test_a_failed_download_is_one_sentence_and_exits_with_two(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert call(monkeypatch, "install", "pocketsphinx-testdata") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("check",), ("install",)])
def test_wrong_usage_exits_with_two(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    assert call(monkeypatch, *arguments) == 2


@pytest.mark.parametrize("arguments", [(), ("list",), ("install",), ("build",), ("check",)])
def test_help_has_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert call(monkeypatch, *arguments, "--help") == 0
    shown = capsys.readouterr().out
    assert "Example" in shown
    assert "voiceprobe corpus" in shown


def test_the_cache_is_shown_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VOICEPROBE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("VOICEPROBE_CACHE_GB", "2.5")
    with open_cache_entry("a" * 32).writer() as pack:
        pack.add("one", None, bytes(2_000_000))
    assert call(monkeypatch, "cache") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'cache'}: 2.0 MB in 1 entry, at most 2.5 GB\n"
    assert call(monkeypatch, "cache", "--clear") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'cache'}: 2.0 MB removed\n"
    assert not list((tmp_path / "cache").glob("*/*"))
    monkeypatch.setenv("VOICEPROBE_CACHE_GB", "lots")
    assert call(monkeypatch, "cache") == 2
    assert "VOICEPROBE_CACHE_GB='lots' is no size" in capsys.readouterr().err
