"""Tests of the installation of recorded speech, with packages built like the real ones."""

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from corpora.manifest.errors import CorpusError
from corpora.manifest.library import open_corpus
from corpora.sources.install import install
from tests.corpus_faults import find_faults

Encode = Callable[..., bytes]
ROOT = "./usr/share/pocketsphinx/test/data"


def tar_gz(entries: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def speech(
    make_burst: Callable[..., np.ndarray[tuple[int], np.dtype[np.float64]]],
) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.rint(make_burst() * 32_768).astype(np.int16)


@pytest.fixture
def sphinx(speech: np.ndarray[tuple[int], np.dtype[np.int16]], encode: Encode) -> dict[str, bytes]:
    wav = encode(speech, form="WAV")
    return {
        f"{ROOT}/cards/cards.transcription": b"<s> ten of clubs  </s> (001)\nrubbish\n<s> five five  </s> (002)\n",
        f"{ROOT}/cards/001.wav": wav,
        f"{ROOT}/cards/002.wav": wav,
        f"{ROOT}/librivox/transcription": b"<s> he was not </s> (sense_and-0880)\n",
        f"{ROOT}/librivox/sense_and-0880.wav": wav,
        f"{ROOT}/goforward.raw": speech.astype("<i2").tobytes(),
        f"{ROOT}/something.raw": speech.astype("<i2").tobytes() + b"\x00",
        f"{ROOT}/numbers.raw": speech.tobytes(),
        f"{ROOT}/tidigits/dhd.2934z.raw": speech.tobytes(),
    }


def saved(tmp_path: Path, entries: dict[str, bytes]) -> Path:
    file = tmp_path / "package.tar.gz"
    file.write_bytes(tar_gz(entries))
    return file


def test_pocketsphinx_clips_are_annotated_and_licensed(
    home: Path, tmp_path: Path, sphinx: dict[str, bytes], speech: np.ndarray[tuple[int], np.dtype[np.int16]]
) -> None:
    folder = install("pocketsphinx-testdata", [saved(tmp_path, sphinx)])
    assert folder == home / "corpora" / "pocketsphinx-testdata"
    corpus = open_corpus()
    assert (corpus.name, corpus.kind) == ("pocketsphinx-testdata", "recorded human")
    assert {u.id: u.text for u in corpus.utterances} == {
        "librivox-0880": "he was not",
        "cards-001": "ten of clubs",
        "cards-002": "five five",
        "goforward": "go forward ten meters",
        "something": "go somewhere and do something",
    }
    assert {u.license for u in corpus.utterances} == {"BSD-2-Clause"}
    assert find_faults(folder) == ()
    for utterance in corpus.utterances:
        assert np.array_equal(np.rint(corpus.read(utterance) * 32_768), speech)
        assert (utterance.speech_start_sample, utterance.speech_end_sample) == (3_200, 19_199)
    assert [entry.name for entry in folder.parent.iterdir()] == ["pocketsphinx-testdata"]


def test_an_installed_corpus_is_kept_unless_forced(home: Path, tmp_path: Path, sphinx: dict[str, bytes]) -> None:
    folder = install("pocketsphinx-testdata", [saved(tmp_path, sphinx)])
    del sphinx[f"{ROOT}/cards/002.wav"]
    sphinx[f"{ROOT}/cards/cards.transcription"] = b"<s> ten of clubs  </s> (001)\n"
    package = saved(tmp_path, sphinx)
    assert install("pocketsphinx-testdata", [package]) == folder
    assert len(open_corpus().utterances) == 5
    install("pocketsphinx-testdata", [package], force=True)
    assert len(open_corpus().utterances) == 4


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({f"{ROOT}/goforward.raw": None}, "The package does not contain goforward.raw"),
        ({f"{ROOT}/cards/001.wav": None}, "The package does not contain cards/001.wav"),
        ({f"{ROOT}/cards/001.wav": b"RIFF rubbish"}, "cards/001.wav: is not audio"),
        ({f"{ROOT}/librivox/transcription": b""}, "contains no transcript"),
    ],
)
def test_an_unexpected_package_installs_nothing(
    home: Path, tmp_path: Path, sphinx: dict[str, bytes], change: dict[str, bytes | None], expected: str
) -> None:
    entries = {name: content for name, content in (sphinx | change).items() if content is not None}
    with pytest.raises(CorpusError, match=expected):
        install("pocketsphinx-testdata", [saved(tmp_path, entries)])
    assert not (home / "corpora" / "pocketsphinx-testdata").exists()


def test_an_id_that_leads_elsewhere_stays_in_the_folder(
    home: Path,
    tmp_path: Path,
    sphinx: dict[str, bytes],
    speech: np.ndarray[tuple[int], np.dtype[np.int16]],
    encode: Encode,
) -> None:
    sphinx[f"{ROOT}/cards/cards.transcription"] += b"<s> up </s> (../../../../evil)\n"
    sphinx[f"{ROOT}/cards/../../../../evil.wav"] = encode(speech, form="WAV")
    with pytest.raises(CorpusError, match="The package does not contain"):
        install("pocketsphinx-testdata", [saved(tmp_path, sphinx)])
    assert not list(tmp_path.rglob("*evil*"))


def test_asterisk_prompts(home: Path, tmp_path: Path) -> None:
    sounds = "./usr/share/asterisk/sounds/en_US_f_Allison"
    rng = np.random.default_rng(1)
    # Random octets between octets of the idle code: noise between near silence.
    prompt = b"\xfa" * 2_400 + rng.integers(0, 256, 4_800, dtype=np.uint8).tobytes() + b"\xfa" * 2_400
    texts = (
        b"; comment\n\nagent-pass: Please enter.\ndigits/1: one\nbeep: [this is a tone]\nsilent: Hush.\nmenu: Long.\n"
    )
    package = saved(
        tmp_path,
        {
            f"{sounds}/agent-pass.g722": prompt,
            f"{sounds}/digits/1.g722": prompt,
            f"{sounds}/beep.g722": prompt,
            f"{sounds}/silent.g722": b"\xfa" * 4_000,
            f"{sounds}/without_text.g722": prompt,
            f"{sounds}/menu.g722": prompt * 11,
            "./usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz": gzip.compress(texts),
        },
    )
    folder = install("asterisk-core-sounds-en", [package])
    corpus = open_corpus("asterisk-core-sounds-en")
    assert {u.id: u.text for u in corpus.utterances} == {"agent-pass": "Please enter.", "digits.1": "one"}
    assert {(u.license, u.sample_rate_hz, u.samples) for u in corpus.utterances} == {("CC-BY-SA-3.0", 16_000, 19_200)}
    for utterance in corpus.utterances:
        assert utterance.speech_start_sample == pytest.approx(4_800, abs=200)
        assert utterance.speech_end_sample == pytest.approx(14_400, abs=400)
    assert find_faults(folder) == ()


def test_prompts_without_texts(home: Path, tmp_path: Path) -> None:
    package = saved(tmp_path, {"./sounds/en/a.g722": b"\x00" * 100})
    with pytest.raises(CorpusError, match="no prompt with a transcript"):
        install("asterisk-core-sounds-en", [package])


def test_an_unknown_corpus_lists_the_known_ones(home: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        install("librispeech")
    assert "'librispeech' is unknown; use one of pocketsphinx-testdata" in str(caught.value)


def apt(tools: Path, script: str) -> None:
    tools.mkdir()
    (tools / "apt-get").write_text(f"#!/bin/sh\n{script}\n")
    (tools / "apt-get").chmod(0o755)


def test_the_package_is_downloaded_by_apt(
    home: Path, tmp_path: Path, sphinx: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = saved(tmp_path, sphinx)
    apt(
        tmp_path / "tools",
        f'case "$*" in *"download pocketsphinx-testdata") exec /bin/cp {package} ./p_1_all.deb;; esac; exit 100',
    )
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    install("pocketsphinx-testdata")
    assert len(open_corpus().utterances) == 5


def test_a_new_machine_updates_its_package_lists_first_as_root(
    home: Path, tmp_path: Path, sphinx: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    package, mark = saved(tmp_path, sphinx), tmp_path / "updated"
    apt(
        tmp_path / "tools",
        f'case "$*" in *update) : > {mark};; *) [ -e {mark} ] && exec /bin/cp {package} ./p_1_all.deb; exit 100;; esac',
    )
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(CorpusError, match="could not be downloaded; go online"):
        install("pocketsphinx-testdata")
    assert not mark.exists()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    install("pocketsphinx-testdata")
    assert len(open_corpus().utterances) == 5


def test_without_apt_the_error_says_what_to_do(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CorpusError) as caught:
        install("pocketsphinx-testdata")
    assert "apt-get is not installed; download them elsewhere and run" in str(caught.value)
    assert "--from pocketsphinx-testdata.deb" in str(caught.value)
