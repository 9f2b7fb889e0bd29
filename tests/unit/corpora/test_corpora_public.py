"""Tests of the public API of `corpora` and of the examples in its documentation."""

import doctest
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import corpora
from corpora import CorpusError, Jitter, PacketLoss, Profile, open_corpus, profile_from_text, render


def test_the_examples_of_the_package_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(corpora, raise_on_error=False)
    assert result.attempted > 10
    assert result.failed == 0


def test_every_public_name_exists_and_has_a_docstring() -> None:
    for name in corpora.__all__:
        found = getattr(corpora, name)
        assert callable(found) or name == "LengthClass"
        assert name == "LengthClass" or found.__doc__, name


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
def test_an_unreadable_value_gets_a_sentence_that_says_what_to_write(given: dict[str, Any], expected: str) -> None:
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
