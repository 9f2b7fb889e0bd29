"""Tests that the benchmark of rendering and starting prints plausible figures for a small corpus."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]


def test_a_small_corpus_is_rendered_and_workers_start_from_the_cache() -> None:
    arguments = ["--utterances", "24", "--seconds", "1", "--profile", "noise=pink snr=10 channel=g711a"]
    completed = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.corpora", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(completed.stdout)
    assert (figures["utterances"], figures["seconds_each"]) == (24, 1.0)
    assert figures["render_s"] > 0
    assert len(figures["start_s"]) == len(figures["own_mb"]) == 2
    # 1.2 s of samples at 24 kHz and 16 bits, and their frames as base64 in JSON: about 2.5 times the samples.
    assert 24 * 1.2 * 48_000 * 2 < figures["cache_mb"] * 1e6 < 24 * 1.2 * 48_000 * 5
    print(completed.stdout)
