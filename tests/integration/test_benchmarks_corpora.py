"""The benchmark of rendering and starting, in small: its figures are there and agree with one another."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_small_corpus_is_rendered_and_workers_start_from_the_cache() -> None:
    arguments = ["--utterances", "24", "--seconds", "1", "--profile", "noise=pink snr=10 channel=g711a"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.corpora", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert (found["utterances"], found["seconds_each"]) == (24, 1.0)
    assert found["render_s"] > 0
    assert len(found["start_s"]) == len(found["own_mb"]) == 2
    # Samples of 1.2 s at 24 kHz and 16 bits, and frames of base64 in JSON: two and a half times the samples.
    assert 24 * 1.2 * 48_000 * 2 < found["cache_mb"] * 1e6 < 24 * 1.2 * 48_000 * 5
    print(done.stdout)
