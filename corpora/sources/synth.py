"""The bundled corpus: texts synthesized by flite, with the same samples from the same version of flite.

The clips are flite's unmodified output: nothing outside the detected bounds is cut or silenced, so the bounds can be
checked against the clip.

`texts.csv`, next to the clips, has the voice, the stretch (above 1 is slower), the domain, the kinds of invented
personal data and the text of each utterance. Numbers are written as words, so that a transcript has only one correct
form.
"""

import csv
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast, get_args

import numpy as np

from corpora.manifest.clips import Samples, decode
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import BUNDLED
from corpora.manifest.manifest import DEFAULT_EDGES, Edges, PiiKind
from corpora.sources.authoring import Draft, write_corpus

TEXTS_NAME: Final = "texts.csv"
LICENSE_NAME: Final = "LICENSE.txt"
LANGUAGE_BY_VOICE = {"slt": "en-US", "rms": "en-US", "kal16": "en-US", "awb": "en-GB"}
_COLUMNS = ["id", "voice", "stretch", "domain", "pii_kinds", "text"]
_STRETCHES = (0.5, 2.0)
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class TextLine:
    """One row of `texts.csv`."""

    id: str
    voice: str
    stretch: float  # duration relative to the voice's own
    domain: str
    pii_kinds: tuple[PiiKind, ...]
    text: str


def read_texts(file: Path) -> list[TextLine]:
    """Read and check the texts. Raises CorpusError with the line."""
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            reader = csv.DictReader(opened)
            if reader.fieldnames != _COLUMNS:
                raise CorpusError(f"{file}: its columns must be {','.join(_COLUMNS)}.")
            return [_line(dict[str | None, str | None](row), f"{file}:{reader.line_num}") for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{file}: the texts cannot be read ({error}); give a CSV file in UTF-8.") from error


def build(folder: Path, into: Path, edges: Edges = DEFAULT_EDGES) -> int:
    """Synthesize the texts of a corpus folder and write the corpus to `into`; returns the number of utterances.

    Raises CorpusError if flite is not installed or fails.
    """
    lines = read_texts(folder / TEXTS_NAME)
    keep = [folder / name for name in (TEXTS_NAME, LICENSE_NAME) if (folder / name).is_file()]
    return write_corpus(into, BUNDLED, "generated", _drafts(lines), keep, edges=edges)


def synthesize_line(line: TextLine) -> Draft:
    """Synthesize one line with flite. Raises CorpusError if flite fails."""
    samples, rate_hz = synthesize_with_flite(line.text, line.voice, line.stretch, label=line.id)
    return Draft(
        id=line.id,
        text=line.text,
        speaker=f"flite-{line.voice}",
        language=LANGUAGE_BY_VOICE[line.voice],
        domain=line.domain,
        license="CC0-1.0",
        source=f"flite voice {line.voice}, {_stretch_option(line.stretch)}",
        pcm=(samples * 32_768.0).astype(np.int16),
        rate_hz=rate_hz,
        pii_kinds=line.pii_kinds,
    )


def synthesize_with_flite(text: str, voice: str, stretch: float, *, label: str) -> tuple[Samples, int]:
    """Synthesize a text with flite; returns samples of shape (samples,) and their rate in Hz.

    Raises CorpusError in a sentence that begins with `label`.
    """
    flite = shutil.which("flite")
    if flite is None:
        raise CorpusError("flite is not installed; install the package flite of your distribution and run this again.")
    with tempfile.TemporaryDirectory(prefix="voiceprobe-flite-") as scratch:
        wav = Path(scratch) / "speech.wav"
        command = [flite, "-voice", voice, "--setf", _stretch_option(stretch), "-t", text, "-o", str(wav)]
        try:
            completed = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise CorpusError(
                f"{label}: flite did not finish within {_TIMEOUT_S} s; run it manually to find the cause."
            ) from error
        if completed.returncode or not wav.is_file():
            raise CorpusError(
                f"{label}: flite exited with code {completed.returncode} and without speech; run it manually to find "
                "the cause."
            )
        return decode(wav.read_bytes(), f"{label}: flite's output")


def _stretch_option(stretch: float) -> str:
    return f"duration_stretch={stretch:g}"


def _drafts(lines: list[TextLine]) -> Iterator[Draft]:
    for line in lines:
        yield synthesize_line(line)


def _line(cells: Mapping[str | None, str | None], where: str) -> TextLine:
    # The csv module stores extra cells under the key None, and None for missing cells.
    row = {column: cells.get(column) or "" for column in _COLUMNS}
    if None in cells or None in cells.values():
        raise CorpusError(f"{where}: must have {len(_COLUMNS)} columns; quote texts that contain commas.")
    if row["voice"] not in LANGUAGE_BY_VOICE:
        raise CorpusError(f"{where}: the voice {row['voice']!r} is unknown; use one of {', '.join(LANGUAGE_BY_VOICE)}.")
    pii_kinds = tuple(kind for kind in row["pii_kinds"].split(";") if kind)
    if not set(pii_kinds) <= set(get_args(PiiKind)):
        raise CorpusError(f"{where}: pii_kinds may be any of {', '.join(get_args(PiiKind))}, joined by semicolons.")
    try:
        stretch = float(row["stretch"])
    except ValueError:
        stretch = 0.0
    if not _STRETCHES[0] <= stretch <= _STRETCHES[1]:
        raise CorpusError(f"{where}: stretch must be a number from {_STRETCHES[0]:g} to {_STRETCHES[1]:g}.")
    if not row["text"].strip():
        raise CorpusError(f"{where}: has no text; add one.")
    kinds = cast("tuple[PiiKind, ...]", pii_kinds)
    return TextLine(row["id"], row["voice"], stretch, row["domain"], kinds, row["text"])
