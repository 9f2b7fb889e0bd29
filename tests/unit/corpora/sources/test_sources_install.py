"""Tests of the installation of recorded speech, with packages built like the real ones."""

import gzip
import io
import os
import tarfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from corpora.manifest.errors import CorpusError
from corpora.manifest.library import open_corpus
from corpora.manifest.locking import corpus_lock
from corpora.sources.install import install
from corpora.sources.recorded import RECORDED_EN_PROMPTS
from tests.corpus_faults import find_faults
from tests.unit.corpora.conftest import burst, encoded

ROOT = "./usr/share/pocketsphinx/test/data"
SOUNDS = "./usr/share/asterisk/sounds/en_US_f_Allison"
TEXTS = "./usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz"
DEB = "pocketsphinx-testdata_1_all.deb"
SPEECH = np.rint(burst() * 32_768).astype(np.int16)


def tar_gz(entries: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def sphinx() -> dict[str, bytes]:
    wav = encoded(SPEECH, form="WAV")
    return {
        f"{ROOT}/cards/cards.transcription": b"<s> ten of clubs  </s> (001)\nrubbish\n<s> five five  </s> (002)\n",
        f"{ROOT}/cards/001.wav": wav,
        f"{ROOT}/cards/002.wav": wav,
        f"{ROOT}/librivox/transcription": b"<s> he was not </s> (sense_and-0880)\n",
        f"{ROOT}/librivox/sense_and-0880.wav": wav,
        f"{ROOT}/goforward.raw": SPEECH.astype("<i2").tobytes(),
        f"{ROOT}/something.raw": SPEECH.astype("<i2").tobytes() + b"\x00",
        f"{ROOT}/numbers.raw": SPEECH.tobytes(),
        f"{ROOT}/tidigits/dhd.2934z.raw": SPEECH.tobytes(),
    }


def saved(tmp_path: Path, entries: dict[str, bytes]) -> Path:
    file = tmp_path / "package.tar.gz"
    file.write_bytes(tar_gz(entries))
    return file


def test_pocketsphinx_clips_are_annotated_and_licensed(home: Path, tmp_path: Path, sphinx: dict[str, bytes]) -> None:
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
        assert np.array_equal(np.rint(corpus.read(utterance) * 32_768), SPEECH)
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


def test_an_id_that_leads_elsewhere_stays_in_the_folder(home: Path, tmp_path: Path, sphinx: dict[str, bytes]) -> None:
    sphinx[f"{ROOT}/cards/cards.transcription"] += b"<s> up </s> (../../../../evil)\n"
    sphinx[f"{ROOT}/cards/../../../../evil.wav"] = encoded(SPEECH, form="WAV")
    with pytest.raises(CorpusError, match="The package does not contain"):
        install("pocketsphinx-testdata", [saved(tmp_path, sphinx)])
    assert not list(tmp_path.rglob("*evil*"))


@pytest.fixture
def prompt() -> bytes:
    """Random octets between octets of the idle code: noise between near silence."""
    rng = np.random.default_rng(1)
    return b"\xfa" * 2_400 + rng.integers(0, 256, 4_800, dtype=np.uint8).tobytes() + b"\xfa" * 2_400


def test_asterisk_prompts(home: Path, tmp_path: Path, prompt: bytes) -> None:
    texts = (
        b"; comment\n\nagent-pass: Please enter.\ndigits/1: one\nbeep: [this is a tone]\nsilent: Hush.\nmenu: Long.\n"
    )
    package = saved(
        tmp_path,
        {
            f"{SOUNDS}/agent-pass.g722": prompt,
            f"{SOUNDS}/digits/1.g722": prompt,
            f"{SOUNDS}/beep.g722": prompt,
            f"{SOUNDS}/silent.g722": b"\xfa" * 4_000,
            f"{SOUNDS}/without_text.g722": prompt,
            f"{SOUNDS}/menu.g722": prompt * 11,
            TEXTS: gzip.compress(texts),
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


@pytest.fixture
def prompts(prompt: bytes) -> dict[str, bytes]:
    """The two packages of prompts, with all that `recorded-en` chooses from them and one that it does not."""
    names = [*(name for chosen in RECORDED_EN_PROMPTS.values() for name in chosen), "vm-onefor"]
    lines = "".join(f"{name}: It is {name.replace('/', ' ')}.\n" for name in names)
    return {f"{SOUNDS}/{name}.g722": prompt for name in names} | {TEXTS: gzip.compress(lines.encode())}


@pytest.mark.slow
def test_recorded_en_joins_both_sources_and_names_them_per_clip(
    home: Path, tmp_path: Path, sphinx: dict[str, bytes], prompts: dict[str, bytes]
) -> None:
    (tmp_path / "other").mkdir()
    steps: list[tuple[int, int]] = []
    packages = [saved(tmp_path, sphinx), saved(tmp_path / "other", prompts)]
    folder = install("recorded-en", packages, progress=lambda done, total: steps.append((done, total)))
    corpus = open_corpus()
    assert (corpus.name, corpus.kind) == ("recorded-en", "recorded human"), "the first choice of all commands"
    by_id = {utterance.id: utterance for utterance in corpus.utterances}
    assert len(by_id) == 5 + 65
    assert steps == [(done, 70) for done in range(1, 71)]
    assert "vm-onefor" not in by_id
    assert (by_id["digits.17"].text, by_id["digits.17"].domain) == ("It is digits 17.", "numbers")
    assert (by_id["vm-deleted"].license, by_id["vm-deleted"].domain) == ("CC-BY-SA-3.0", "voicemail")
    assert by_id["vm-deleted"].source == "asterisk-core-sounds-en, vm-deleted.g722"
    assert (by_id["cards-001"].license, by_id["cards-001"].domain) == ("BSD-2-Clause", "games")
    assert by_id["goforward"].speaker == by_id["something"].speaker
    assert len({utterance.speaker for utterance in corpus.utterances}) == 4
    assert len(corpus.utterances[0].source) > 0
    assert find_faults(folder) == ()
    before = (folder / "manifest.jsonl").read_bytes()
    install("recorded-en", packages[::-1], force=True)
    assert (folder / "manifest.jsonl").read_bytes() == before, "the order of the packages has no effect"


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ("/pocketsphinx/", "contain no file of pocketsphinx-testdata; give --from for each package"),
        (".g722", "no prompt with a transcript; give both the package of G.722 sounds and that of texts"),
        (".txt.gz", "no prompt with a transcript"),
        ("vm-deleted", "do not contain 1 of 65 prompts .the first is vm-deleted.; use another version"),
        ("goforward", "does not contain goforward.raw"),
    ],
)
def test_recorded_en_from_half_of_its_packages_installs_nothing(
    home: Path, tmp_path: Path, sphinx: dict[str, bytes], prompts: dict[str, bytes], left_out: str, expected: str
) -> None:
    entries = {name: content for name, content in (sphinx | prompts).items() if left_out not in name}
    with pytest.raises(CorpusError, match=expected):
        install("recorded-en", [saved(tmp_path, entries)])
    assert not (home / "corpora" / "recorded-en").exists()


def test_an_unknown_corpus_lists_the_known_ones(home: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        install("librispeech")
    assert "'librispeech' is unknown; use one of recorded-en" in str(caught.value)
    assert "; pocketsphinx-testdata (" in str(caught.value)


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
        f'case "$*" in *"download pocketsphinx-testdata") exec /bin/cp {package} ./{DEB};; esac; exit 100',
    )
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    install("pocketsphinx-testdata")
    assert len(open_corpus().utterances) == 5


@pytest.mark.parametrize("user", [0, 1_000])
def test_missing_package_lists_are_fetched_apart_from_system(
    user: int, home: Path, tmp_path: Path, sphinx: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    package, mark = saved(tmp_path, sphinx), tmp_path / "calls"
    # A download needs lists, and an update of lists other than the system's a folder for them.
    apt(
        tmp_path / "tools",
        f"""echo "$*" >> {mark}
        case "$*" in *Dir::State::Lists=*) ;; *) echo 'E: Unable to locate package x' >&2; exit 100;; esac
        case "$*" in
            *update) [ -d lists/partial ] && : > lists/main;;
            *) [ -e lists/main ] && exec /bin/cp {package} ./{DEB}; exit 100;;
        esac""",
    )
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    install("pocketsphinx-testdata")
    assert len(open_corpus().utterances) == 5
    first, update, second = mark.read_text().splitlines()
    assert "Dir::" not in first
    assert update.endswith("update")
    assert "Dir::Cache=" in update
    assert second.endswith("download pocketsphinx-testdata")


@pytest.mark.parametrize(
    ("script", "missing", "reason"),
    [
        (
            "echo 'E: Unable to locate package asterisk-core-sounds-en-g722' >&2; exit 100",
            "pocketsphinx-testdata, asterisk-core-sounds-en and asterisk-core-sounds-en-g722",
            "apt-get: Unable to locate package asterisk-core-sounds-en-g722",
        ),
        (
            "for name in pocketsphinx-testdata asterisk-core-sounds-en; do : > ${name}_1_all.deb; done; "
            "printf 'W: old lists\nE: Failed to fetch g722   Temporary failure\nE: More\n' >&2; exit 100",
            "asterisk-core-sounds-en-g722",
            "apt-get: Failed to fetch g722 Temporary failure",
        ),
        ("exit 0", "asterisk-core-sounds-en-g722", "apt-get wrote no file"),
        ("exit 3", "asterisk-core-sounds-en-g722", "apt-get exited with code 3"),
    ],
)
def test_failed_download_names_missing_packages_and_reason(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, missing: str, reason: str
) -> None:
    apt(tmp_path / "tools", script)
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(CorpusError) as caught:
        install("recorded-en")
    sentence = str(caught.value)
    assert f"{missing} could not be downloaded ({reason}); go online, or " in sentence
    assert sentence.count("\n") == 0
    assert list((home / "corpora").iterdir()) == []


def test_installation_that_waited_for_another_keeps_its_corpus(
    home: Path, tmp_path: Path, sphinx: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = saved(tmp_path, sphinx)
    locked: list[Path] = []

    @contextmanager
    def wait_for_the_other(folder: Path) -> Generator[None]:
        monkeypatch.undo()
        monkeypatch.setenv("VOICEPROBE_HOME", str(home))
        install("pocketsphinx-testdata", [package])
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
        with corpus_lock(folder):
            locked.append(folder)
            yield

    monkeypatch.setattr("corpora.sources.install.corpus_lock", wait_for_the_other)
    folder = install("pocketsphinx-testdata")
    assert locked == [home / "corpora"]
    assert len(open_corpus(folder).utterances) == 5


def test_unwritable_home_is_one_sentence_before_any_download(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("a file")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(CorpusError, match=r"there \(Not a directory\); check its permissions"):
        install("pocketsphinx-testdata")


def test_without_apt_the_error_says_what_to_do(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CorpusError) as caught:
        install("pocketsphinx-testdata")
    assert "apt-get is not installed; download it elsewhere and run" in str(caught.value)
    assert "--from pocketsphinx-testdata.deb" in str(caught.value)
