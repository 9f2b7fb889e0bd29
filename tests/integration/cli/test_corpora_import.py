"""Tests of the import as a process: killed at any time, with limited memory, and with several imports at once."""

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
from tests.unit.corpora.sources.importing.sources import RATE_HZ, import_source, put, speech

TIMEOUT_S = 120
MAX_MEMORY_BYTES = 96 * 1024 * 1024

# Imports in one process, and prints how much more memory that took than a first small import.
MEASURED_IMPORT = """
import resource, sys, tracemalloc
from pathlib import Path
from corpora.manifest.errors import CorpusError
from tests.unit.corpora.sources.importing.sources import import_source, put, speech
here = Path(sys.argv[1])
import_source(here / "warm", here / "warmed", caller_channel=None)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    outcome = import_source(here / "in", here / "out", skip_bad=True, **eval(sys.argv[2]))
    result = f"{len(outcome.imported)} imported"
except CorpusError as error:
    result = str(error)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024, result.splitlines()[0])
"""

KILLED_IMPORT = """
import os, signal, sys
from pathlib import Path
from corpora.sources.importing.layouts import LAYOUTS
from corpora.sources.importing.items import Settings
from corpora.sources.importing.pipeline import import_corpus
from corpora.sources.importing.tree import open_tree
source, into, append = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "1"
progress = lambda done, total: os.kill(os.getpid(), signal.SIGKILL) if total == 80 and done == 70 else None
settings = Settings("CC0-1.0", "asked by a test", "in")
import_corpus(open_tree(source), LAYOUTS["folder"], into, settings, append=append, progress=progress)
"""

# Appends to a corpus after a line on standard input, so that several imports start together.
APPENDING_IMPORT = """
import sys
from pathlib import Path
from corpora import import_recordings
print("ready", flush=True)
sys.stdin.readline()
import_recordings(sys.argv[1], sys.argv[2], license="CC0-1.0", consent="asked", append=True)
"""


def sparse_wav(file: Path, seconds: int, channels: int, speech_at: dict[int, bytes]) -> Path:
    """A sparse WAV that is silent except for some speech, and takes hardly any space on the disk."""
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
    completed = subprocess.run(
        [sys.executable, "-c", MEASURED_IMPORT, str(tmp_path), settings],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    used, _, result = completed.stdout.strip().partition(" ")
    return int(used), result


@pytest.mark.nightly
def test_a_call_of_half_an_hour_is_cut_with_limited_memory(tmp_path: Path) -> None:
    stereo = np.zeros((len(speech()), 2))
    stereo[:, 0] = speech()
    speech_bytes = np.rint(stereo * 32_767).astype("<i2").tobytes()
    # Decoded to 32-bit samples it would take 230 MB.
    sparse_wav(tmp_path / "in" / "call.wav", 1_800, 2, {100: speech_bytes, 1_700: speech_bytes})
    used, outcome = measured(tmp_path, "{'caller_channel': 0}")
    assert outcome == "2 imported"
    assert used < MAX_MEMORY_BYTES


@pytest.mark.nightly
def test_recordings_of_ten_hours_take_limited_memory(tmp_path: Path) -> None:
    sparse_wav(tmp_path / "in" / "long.wav", 10 * 3600, 1, {})
    (tmp_path / "in" / "list.csv").write_text("file,start_s,end_s\nlong.wav,0,36000\nlong.wav,35000,35001\n")
    used, outcome = measured(tmp_path, "{}")
    assert outcome.startswith("in: contains nothing that can be imported")
    assert used < MAX_MEMORY_BYTES


def test_killed_import_leaves_nothing_and_killed_append_resumes(tmp_path: Path) -> None:
    burst = np.pad(np.random.default_rng(1).standard_normal(4_000) * 0.1, 1_600)
    for number in range(80):
        put(tmp_path / "in" / f"{number:02}.wav", burst)
    assert killed(tmp_path, "out", append=False) == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.glob(".out.importing-*/fresh/clips/*.flac"))

    assert killed(tmp_path, "grown", append=True) == -signal.SIGKILL
    assert find_faults(tmp_path / "grown") == ()
    assert len(read_manifest(tmp_path / "grown").utterances) == 64
    outcome = import_source(tmp_path / "in", tmp_path / "grown", append=True)
    assert (outcome.already, len(outcome.imported)) == (64, 16)
    assert find_faults(tmp_path / "grown") == ()

    import_source(tmp_path / "in", tmp_path / "out")
    assert not list(tmp_path.glob(".out.importing-*"))


def killed(tmp_path: Path, into: str, *, append: bool) -> int:
    """Run an import that is killed after seventy clips; returns its exit code."""
    command = [sys.executable, "-c", KILLED_IMPORT, str(tmp_path / "in"), str(tmp_path / into), str(int(append))]
    return subprocess.run(command, timeout=TIMEOUT_S, check=False).returncode


@pytest.mark.nightly
@pytest.mark.parametrize("attempt", range(2))
def test_concurrent_imports_into_one_corpus_lose_nothing(tmp_path: Path, attempt: int) -> None:
    into = tmp_path / "out"
    children: list[subprocess.Popen[str]] = []
    for name in "abc":
        for number in range(3):
            put(tmp_path / name / f"{name}{number}.wav", speech(number), text=f"{name} {number}")
    if attempt % 2:
        import_source(tmp_path / "a", into, append=True)  # either there is a corpus, or all imports start without one
    try:
        for name in "abc":
            command = [sys.executable, "-c", APPENDING_IMPORT, str(tmp_path / name), str(into)]
            children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            child.communicate(timeout=TIMEOUT_S)
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert [child.returncode for child in children] == [0, 0, 0]
    utterances = read_manifest(into).utterances
    assert sorted(utterance.text or "" for utterance in utterances) == [f"{n} {k}" for n in "abc" for k in range(3)]
    assert not find_faults(into)


def test_an_import_waits_for_another_one_and_reports_it(tmp_path: Path) -> None:
    put(tmp_path / "a" / "a.wav", speech(0), text="first")
    put(tmp_path / "b" / "b.wav", speech(1), text="second")
    import_source(tmp_path / "a", tmp_path / "out", append=True)
    rights = ["--license", "CC0-1.0", "--consent", "asked"]
    command = [
        sys.executable,
        "-m",
        "corpora",
        "import",
        str(tmp_path / "b"),
        "--into",
        str(tmp_path / "out"),
        "--append",
    ]
    with ExitStack() as lock:
        lock.enter_context(corpus_lock(tmp_path / "out"))
        child = subprocess.Popen([*command, *rights], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            assert child.stderr is not None
            assert child.stderr.readline() == (
                f"{tmp_path / 'out'}: is being changed by another process; waiting for it to finish.\n"
            )
            assert len(read_manifest(tmp_path / "out").utterances) == 1
            lock.close()
            child.communicate(timeout=TIMEOUT_S)
        finally:
            child.kill()
            child.wait()
    assert child.returncode == 0
    assert [utterance.text for utterance in read_manifest(tmp_path / "out").utterances] == ["first", "second"]
