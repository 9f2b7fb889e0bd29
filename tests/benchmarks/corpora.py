"""Benchmark of rendering speech and of starting a swarm from the cache; prints one JSON object.

For developers of the render cache, who compare it before and after a change; the other benchmarks do not include it.

A temporary corpus of many utterances is made from the bundled clips, each cut to length and scaled by its own gain, so
that no two have the same bytes. Each worker is a process that prepares the corpus as a worker of a swarm does, and
prints the time it took and its own memory.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import soundfile

from corpora.manifest.library import open_corpus
from corpora.manifest.manifest import Utterance, write_manifest
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.preparation import prepare, render_ahead

ROOT = Path(__file__).resolve().parents[2]
LEAD_S = 0.1


def make_corpus(folder: Path, count: int, seconds: float) -> None:
    """Write a corpus of `count` utterances, each of `seconds` of speech at 16 kHz."""
    bundled = open_corpus("voiceprobe-en", check_clips=False)
    sources = [bundled.read(each)[each.speech_start_sample : each.speech_end_sample + 1] for each in bundled.utterances]
    rate_hz = bundled.utterances[0].sample_rate_hz
    length, lead = round(seconds * rate_hz), round(LEAD_S * rate_hz)
    (folder / "clips").mkdir(parents=True)
    rows: list[Utterance] = []
    for number in range(count):
        gain = 0.5 + 0.5 * (number + 1) / count
        speech = np.resize(sources[number % len(sources)], length) * gain
        file = folder / "clips" / f"u{number}.flac"
        soundfile.write(file, np.pad(speech, lead), rate_hz)
        rows.append(
            replace(
                bundled.utterances[number % len(sources)],
                id=f"u{number}",
                path=f"clips/{file.name}",
                sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
                samples=length + 2 * lead,
                speech_start_sample=lead,
                speech_end_sample=lead + length - 1,
            )
        )
    write_manifest(folder, "many", "generated", rows, edges="exact")


def settings_for(folder: Path, count: int, profile: str) -> SwarmSettings:
    """The settings of a swarm that uses the whole corpus with one variant per utterance."""
    return SwarmSettings(host="ws://h", corpus=str(folder), clips=count, speech_profiles=profile, variants=1)


def start_worker(folder: Path, count: int, profile: str) -> dict[str, float]:
    """Run a worker that prepares the corpus from the cache; returns its figures."""
    arguments = [sys.executable, "-m", "tests.benchmarks.corpora", "--worker", str(folder)]
    arguments += ["--utterances", str(count), "--profile", profile]
    completed = subprocess.run(arguments, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(completed.stdout)


def measure(count: int, seconds: float, profile: str) -> dict[str, Any]:
    """Measure rendering and starting; returns the figures."""
    with tempfile.TemporaryDirectory(prefix="voiceprobe-bench-") as scratch:
        os.environ["VOICEPROBE_CACHE"], folder = f"{scratch}/cache", Path(scratch) / "corpus"
        make_corpus(folder, count, seconds)
        settings = settings_for(folder, count, profile)
        start = time.perf_counter()
        render_ahead(settings, registry.make_caller(settings.protocol, CallerOptions()))
        rendered_s = time.perf_counter() - start
        size = sum(file.stat().st_size for file in Path(scratch, "cache").rglob("*.pack"))
        workers = [start_worker(folder, count, profile) for _ in range(2)]
    return {
        "utterances": count,
        "seconds_each": seconds,
        "profile": profile,
        "cores": len(os.sched_getaffinity(0)),
        "render_s": round(rendered_s, 2),
        "cache_mb": round(size / 1e6),
        "start_s": [round(worker["start_s"], 2) for worker in workers],
        "own_mb": [round(worker["own_mb"]) for worker in workers],
    }


def work(folder: Path, count: int, profile: str) -> dict[str, float]:
    """Prepare the corpus as a worker and access every clip; returns seconds and megabytes."""
    settings = settings_for(folder, count, profile)
    before = own_bytes()
    start = time.perf_counter()
    prepared = prepare(settings, registry.make_caller(settings.protocol, CallerOptions()))
    start_s = time.perf_counter() - start
    frames = sum(len(clip.frames) for clip in prepared.clips)
    return {"start_s": start_s, "own_mb": (own_bytes() - before) / 1e6, "frames": frames}


def own_bytes() -> int:
    """The memory of this process without shared memory, such as that of mapped files."""
    memory = psutil.Process().memory_info()
    return memory.rss - memory.shared


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--utterances", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--profile", default="noise=white snr=15 channel=telephone")
    parser.add_argument("--worker", type=Path)
    arguments = parser.parse_args()
    figures = (
        work(arguments.worker, arguments.utterances, arguments.profile)
        if arguments.worker
        else measure(arguments.utterances, arguments.seconds, arguments.profile)
    )
    sys.stdout.write(json.dumps(figures, indent=None if arguments.worker else 2) + "\n")


if __name__ == "__main__":
    main()
