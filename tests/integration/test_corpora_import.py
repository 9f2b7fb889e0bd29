"""The import as a process: killed at any moment, and held to a bound of memory."""

import signal
import struct
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from corpora.manifest.locking import corpus_lock
from corpora.manifest.manifest import read_manifest
from tests.corpus_faults import find_faults
from tests.unit.corpora.sources.importing.sources import RATE_HZ, bring, put, speech

BOUND_S = 120
MEMORY_BYTES = 96 * 1024 * 1024

# Imports in one process, and says how much memory that took beyond what it took to begin.
MEASURED = """
import resource, sys, tracemalloc
from pathlib import Path
from corpora.manifest.errors import CorpusError
from tests.unit.corpora.sources.importing.sources import bring, put, speech
here = Path(sys.argv[1])
bring(here / "warm", here / "warmed", caller_channel=None)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    outcome = bring(here / "in", here / "out", skip_bad=True, **eval(sys.argv[2]))
    said = f"{len(outcome.imported)} imported"
except CorpusError as error:
    said = str(error)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024, said.splitlines()[0])
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from corpora.sources.importing.formats import LAYOUTS
from corpora.sources.importing.items import Settings
from corpora.sources.importing.pipeline import import_corpus
from corpora.sources.importing.tree import open_tree
source, into, append = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "1"
progress = lambda done, total: os.kill(os.getpid(), signal.SIGKILL) if total == 80 and done == 70 else None
settings = Settings("CC0-1.0", "asked by a test", "in")
import_corpus(open_tree(source), LAYOUTS["folder"], into, settings, append=append, progress=progress)
"""

# Imports, adding to what is there; waits for a sign before it begins, so that two begin together.
ADDED = """
import sys
from pathlib import Path
from corpora import import_recordings
print("ready", flush=True)
sys.stdin.readline()
import_recordings(sys.argv[1], sys.argv[2], license="CC0-1.0", consent="asked", append=True)
"""


def sparse_wav(file: Path, seconds: int, channels: int, speech_at: dict[int, bytes]) -> Path:
    """A WAV that is silent but for some speech, and takes next to no room on the disk."""
    step = 2 * channels
    size = seconds * RATE_HZ * step
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, 1, channels, RATE_HZ,
                         RATE_HZ * step, step, 16, b"data", size)  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        out.write(header)
        out.truncate(len(header) + size)
        for second, content in speech_at.items():
            out.seek(len(header) + second * RATE_HZ * step)
            out.write(content)
    return file


def measured(tmp_path: Path, settings: str) -> tuple[int, str]:
    put(tmp_path / "warm" / "a.wav", speech())
    ended = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path), settings],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=True,
    )
    used, _, said = ended.stdout.strip().partition(" ")
    return int(used), said


@pytest.mark.slow
def test_a_call_of_half_an_hour_is_cut_within_bounded_memory(tmp_path: Path) -> None:
    stereo = np.zeros((len(speech()), 2))
    stereo[:, 0] = speech()
    said = np.rint(stereo * 32_767).astype("<i2").tobytes()
    # As samples of 32 bits it would take 230 MB.
    sparse_wav(tmp_path / "in" / "call.wav", 1_800, 2, {100: said, 1_700: said})
    used, outcome = measured(tmp_path, "{'caller_channel': 0}")
    assert outcome == "2 imported"
    assert used < MEMORY_BYTES


@pytest.mark.slow
def test_ten_hours_and_a_header_that_lies_take_bounded_memory(tmp_path: Path) -> None:
    sparse_wav(tmp_path / "in" / "long.wav", 10 * 3600, 1, {})
    (tmp_path / "in" / "list.csv").write_text("file,start_s,end_s\nlong.wav,0,36000\nlong.wav,35000,35001\n")
    used, outcome = measured(tmp_path, "{}")
    assert outcome.startswith("in: holds nothing that can be imported")
    assert used < MEMORY_BYTES


@pytest.mark.slow
def test_a_killed_import_leaves_no_corpus_and_an_appending_one_goes_on(tmp_path: Path) -> None:
    burst = np.pad(np.random.default_rng(1).standard_normal(4_000) * 0.1, 1_600)
    for number in range(80):
        put(tmp_path / "in" / f"{number:02}.wav", burst)
    assert killed(tmp_path, "out", append=False) == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.glob(".out.importing-*/fresh/clips/*.flac"))

    assert killed(tmp_path, "grown", append=True) == -signal.SIGKILL
    assert find_faults(tmp_path / "grown") == ()
    assert len(read_manifest(tmp_path / "grown").utterances) == 64
    outcome = bring(tmp_path / "in", tmp_path / "grown", append=True)
    assert (outcome.already, len(outcome.imported)) == (64, 16)
    assert find_faults(tmp_path / "grown") == ()

    bring(tmp_path / "in", tmp_path / "out")
    assert not list(tmp_path.glob(".out.importing-*"))


def killed(tmp_path: Path, into: str, *, append: bool) -> int:
    """Import, and be killed when seventy clips are made."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "in"), str(tmp_path / into), str(int(append))]
    return subprocess.run(command, timeout=BOUND_S, check=False).returncode


@pytest.mark.parametrize("attempt", range(4))
def test_imports_that_add_to_one_corpus_at_once_lose_nothing(tmp_path: Path, attempt: int) -> None:
    into = tmp_path / "out"
    children: list[subprocess.Popen[str]] = []
    for name in "abc":
        for number in range(3):
            put(tmp_path / name / f"{name}{number}.wav", speech(number), text=f"{name} {number}")
    if attempt % 2:
        bring(tmp_path / "a", into, append=True)  # there already, or all begin with nothing
    try:
        for name in "abc":
            words = [sys.executable, "-c", ADDED, str(tmp_path / name), str(into)]
            children.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            child.communicate(timeout=BOUND_S)
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert [child.returncode for child in children] == [0, 0, 0]
    utterances = read_manifest(into).utterances
    assert sorted(utterance.text or "" for utterance in utterances) == [f"{n} {k}" for n in "abc" for k in range(3)]
    assert not find_faults(into)


def test_an_import_waits_for_the_one_that_holds_the_corpus_and_says_so(tmp_path: Path) -> None:
    put(tmp_path / "a" / "a.wav", speech(0), text="first")
    put(tmp_path / "b" / "b.wav", speech(1), text="second")
    bring(tmp_path / "a", tmp_path / "out", append=True)
    rights = ["--license", "CC0-1.0", "--consent", "asked"]
    words = [
        sys.executable,
        "-m",
        "corpora",
        "import",
        str(tmp_path / "b"),
        "--into",
        str(tmp_path / "out"),
        "--append",
    ]
    with ExitStack() as held:
        held.enter_context(corpus_lock(tmp_path / "out"))
        child = subprocess.Popen([*words, *rights], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            assert child.stderr is not None
            assert child.stderr.readline() == (
                f"{tmp_path / 'out'}: is being changed by another process; waiting until it is done.\n"
            )
            assert len(read_manifest(tmp_path / "out").utterances) == 1
            held.close()
            child.communicate(timeout=BOUND_S)
        finally:
            child.kill()
            child.wait()
    assert child.returncode == 0
    assert [utterance.text for utterance in read_manifest(tmp_path / "out").utterances] == ["first", "second"]
