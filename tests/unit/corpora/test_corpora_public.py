"""The public API of corpora with its documented examples, the command and its exit codes, and output paths."""

import doctest
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import corpora
from corpora import CorpusError, Jitter, PacketLoss, Profile, open_corpus, profile_from_text, render
from corpora.output_paths import is_device, unwritable, unwritable_folder
from corpora.rendering.cache import open_cache_entry
from tests.unit.corpora.conftest import Ran, Workshop


def test_the_examples_of_the_package_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(corpora, raise_on_error=False)
    assert result.attempted > 10
    assert result.failed == 0


def test_every_public_name_exists_and_has_a_docstring() -> None:
    for name in corpora.__all__:
        member = getattr(corpora, name)
        assert callable(member) or name == "LengthClass"
        assert name == "LengthClass" or member.__doc__, name


def test_a_module_of_the_package_imports_no_more_than_it_needs() -> None:
    heavy = "{'scipy', 'soundfile', 'pydantic'} & {name.partition('.')[0] for name in sys.modules}"
    script = f"import sys; import corpora.manifest.errors; print(sorted({heavy}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_unknown_name_is_no_attribute() -> None:
    assert dir(corpora) == corpora.__all__
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = corpora.no_such_name


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ({"channel": "telephone"}, Profile(channel=("telephone",))),
        ({"channel": "opus:24+g711a"}, Profile(channel=("opus:24", "g711a"))),
        ({"channel": ["g722"]}, Profile(channel=("g722",))),
        ({"channel": "clean"}, Profile()),
        ({"room": 0.4}, Profile(room="0.4s")),
        ({"room": 1}, Profile(room="1s")),
        ({"room": "0.4"}, Profile(room="0.4s")),
        ({"loss": 0.05}, Profile(loss=PacketLoss(0.05))),
        ({"loss": "5%"}, Profile(loss=PacketLoss(0.05))),
        ({"loss": "5%/3/80%"}, Profile(loss=PacketLoss(0.05, 3.0, 0.8))),
        ({"jitter": "20ms/60ms"}, Profile(jitter=Jitter(20.0, 60.0))),
        ({"noise": "pink", "snr_db": 10}, Profile("pink", 10.0)),
        ({"noise": "pink", "snr_db": "10"}, Profile("pink", 10.0)),
    ],
)
def test_values_are_accepted_as_people_write_them(given: dict[str, Any], parsed: Profile) -> None:
    profile = Profile(**given)
    assert profile == parsed
    assert profile.digest == parsed.digest
    assert hash(profile) == hash(parsed)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"channel": "telefone"}, "The channel 'telefone' is unknown; use any of telephone"),
        ({"channel": 8000}, "channel: 8000 is not a text; write a name."),
        ({"channel": [1]}, "channel: 1 is not a text; write a name."),
        ({"room": True}, "room: True is not a text; write a name."),
        ({"room": 4.0}, "The room '4s' is unknown; use a reverberation time from 0.05s to 3s"),
        ({"loss": 5}, "The loss must be above 0 % and below 100 % of the packets, got 5."),
        ({"loss": True}, "loss: True is not a number; write one."),
        ({"loss": "5%/3/80%/1"}, "loss: '5%/3/80%/1' has too many parts; write loss/burst length/loss in bursts"),
        ({"jitter": 20}, "jitter: 20 is not a jitter; write mean delay and buffer, as in 20ms/60ms."),
        ({"noise": "pink", "snr_db": "ten"}, "snr_db: 'ten' is not a number; write one."),
        ({"noise": 7}, "noise: 7 is not a text; write a name."),
        ({"gain_db": None}, "gain_db: None is not a number; write one."),
    ],
)
def test_unreadable_value_gives_sentence_with_allowed_values(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(CorpusError) as caught:
        Profile(**given)
    assert expected in str(caught.value)


def test_all_unreadable_values_are_reported_at_once() -> None:
    with pytest.raises(CorpusError) as caught:
        Profile(room=True, loss="x", jitter="20")  # pyright: ignore[reportArgumentType] - the wrong types are intended
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["room", "loss", "jitter"]


@pytest.mark.parametrize("name", ["clip.wav", "clip.flac", "CLIP.WAV"])
def test_a_rendering_is_written_unchanged(tmp_path: Path, name: str) -> None:
    corpus = open_corpus("voiceprobe-en", check_clips=False)
    rendered = render(corpus, corpus.utterances[0], profile_from_text("channel=telephone"), 8_000)
    samples, rate_hz = soundfile.read(rendered.write(tmp_path / name), dtype="int16")
    assert rate_hz == 8_000
    assert np.array_equal(samples, rendered.pcm)


@pytest.mark.parametrize(
    ("name", "expected"), [("clip.mp3", "must end in .wav or .flac"), ("gone/clip.wav", "cannot be written")]
)
def test_a_rendering_that_cannot_be_written_is_an_error(tmp_path: Path, name: str, expected: str) -> None:
    corpus = open_corpus("voiceprobe-en", check_clips=False)
    rendered = render(corpus, corpus.utterances[0], Profile(), 8_000)
    with pytest.raises(CorpusError, match=expected):
        rendered.write(tmp_path / name)


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["new.json", "deep/er/new.json", "old.json", "näme 1.json"])
def test_a_writable_path_is_left_unchanged(tmp_path: Path, name: str) -> None:
    (tmp_path / "old.json").write_text("kept")
    before = everything(tmp_path)
    assert unwritable(tmp_path / name) is None
    assert everything(tmp_path) == before
    assert (tmp_path / "old.json").read_text() == "kept"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("folder", "is a folder; give the name of a file"),
        ("file/x.json", "file is not a folder"),
        ("file/deeper/x.json", "file is not a folder"),
        ("new/" + "x" * 300, "file name too long; choose another path"),
        ("new/" + "y" * 300 + "/x.json", "file name too long; choose another path"),
        ("new/a\0b.json", "null byte; choose another path"),
        ("dangling/x.json", "dangling is not a folder"),
        ("new/a\nb" + "x" * 300, "new/a\\nbxxx"),
    ],
)
def test_unwritable_path_is_one_sentence_and_leaves_nothing(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    before = everything(tmp_path)
    fault = unwritable(Path(f"{tmp_path}/{name}"))
    assert fault is not None
    assert expected in fault
    assert fault.isprintable(), "one line"
    assert everything(tmp_path) == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="requires a path that nobody can write to")
def test_a_folder_that_cannot_be_created_is_reported() -> None:
    fault = unwritable(Path("/proc/self/runs/summary.json"))
    assert fault is not None
    assert fault.startswith("/proc/self/runs/summary.json cannot be written: ")


def test_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert unwritable(tmp_path / "pipe") is None
    assert is_device(tmp_path / "pipe")
    assert is_device(Path(os.devnull))
    (tmp_path / "file").touch()
    assert not any(is_device(tmp_path / name) for name in ("", "file", "nowhere"))


def test_a_folder_is_named_as_it_was_given(tmp_path: Path) -> None:
    assert unwritable_folder(tmp_path) is None
    assert unwritable_folder(tmp_path / "new" / "folder") is None
    assert [*tmp_path.iterdir()] == []
    file = tmp_path / "file"
    file.touch()
    assert unwritable_folder(file) == f"{file} cannot be written: {file} is not a folder"
    assert unwritable_folder(file / "in") == f"{file}/in cannot be written: {file} is not a folder"


Command = Callable[..., Ran]


def test_list_as_json_for_scripts(home: Path, command: Command) -> None:
    ran = command("list", "--json")
    assert (ran.code, ran.err) == (0, "")
    (english,) = json.loads(ran.out)
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
    command = [sys.executable, "-m", "corpora", "install", "unknown"]
    variables = {**os.environ, "VOICEPROBE_HOME": str(tmp_path)}
    completed = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=variables)
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
