"""The import as a process: killed at any moment, and held to a bound of memory."""

import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from corpora.manifest import read_manifest
from tests.corpus_faults import find_faults
from tests.unit.corpora.importing.sources import RATE_HZ, bring, put, speech

BOUND_S = 120
MEMORY_BYTES = 96 * 1024 * 1024

# Imports in one process, and says how much memory that took beyond what it took to begin.
MEASURED = """
import resource, sys, tracemalloc
from pathlib import Path
from corpora.errors import CorpusError
from tests.unit.corpora.importing.sources import bring, put, speech
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
from corpora.importing.formats import LAYOUTS
from corpora.importing.items import Settings
from corpora.importing.pipeline import import_corpus
from corpora.importing.tree import open_tree
source, into, append = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "1"
progress = lambda done, total: os.kill(os.getpid(), signal.SIGKILL) if total == 80 and done == 70 else None
settings = Settings("CC0-1.0", "asked by a test", "in")
import_corpus(open_tree(source), LAYOUTS["folder"], into, settings, append=append, progress=progress)
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
