"""Reads and writes the manifest of a corpus: the metadata of each utterance, with the SHA-256 of its clip.

A corpus is a folder with a `manifest.jsonl` (UTF-8, one JSON object per line) and the clips that it names. The first
line is the header, `{"corpus": NAME, "kind": "recorded human" | "generated", "format": 2}`; each further line is one
utterance with the fields of `Utterance` (those with a default may be omitted). `text` is null if nobody wrote down what
is said; word errors are then not measured. This module checks the manifest alone; `clips` checks the audio against it.
"""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast, get_args

import msgspec

from corpora.manifest.errors import ManifestError
from corpora.manifest.json_lines import decode_rows, read_bounded
from corpora.manifest.validation import (
    NAME_RULE,
    DuplicateFinder,
    Row,
    RowChecker,
    Rule,
    one_line_rule,
    row_label,
    shown,
)

MANIFEST_NAME = "manifest.jsonl"
FORMAT = 2
DEFAULT_EDGES: Final = "exact"  # of a corpus whose manifest does not state them

CorpusKind = Literal["recorded human", "generated"]
# Whether speech ends where rendering fades it out (exact), or where it was annotated in the recording (recorded).
Edges = Literal["exact", "recorded"]
LengthClass = Literal["short", "medium", "long"]
PiiKind = Literal["name", "address", "phone", "email", "card_number", "account_number", "date_of_birth"]

SHORT_BELOW_S = 2.0
LONG_ABOVE_S = 6.0

_MAX_MANIFEST_BYTES = 256 * 1024 * 1024
_MAX_TEXT_CHARS = 10_000
_MAX_UNCERTAINTY_MS = 600_000.0  # no clip is longer
RATES_HZ = range(8_000, 48_001)


@dataclass(frozen=True, slots=True)
class Utterance:
    """One thing a caller says, and where in its clip the speech is."""

    id: str
    path: str  # relative to the manifest, with forward slashes
    text: str | None  # what is said; None if it was not written down
    speaker: str
    language: str  # BCP 47, as in en-US
    domain: str
    license: str  # SPDX, as in CC0-1.0
    source: str
    sha256: str  # of the clip's file, in lowercase hexadecimal
    sample_rate_hz: int
    samples: int
    speech_start_sample: int  # the first speech sample
    speech_end_sample: int  # the last speech sample itself, not the one after it
    consent: str | None = None  # how the speaker agreed to this use; None if not known or if nobody spoke
    bounds_confidence_db: float | None = (
        None  # speech level above the noise floor when the bounds were found; None: set by a person
    )
    # How far the bounds may be off, as half-widths of 95 % intervals; None: not known.
    speech_start_uncertainty_ms: float | None = None
    speech_end_uncertainty_ms: float | None = None
    pii_kinds: tuple[PiiKind, ...] = ()
    processing: str | None = None  # what was done to the recording before it became this clip
    reviewed: bool = False  # whether a person has looked at the bounds

    @property
    def pii(self) -> bool:
        """Whether the text contains personal data, even if it is made up."""
        return bool(self.pii_kinds)

    @property
    def speech_s(self) -> float:
        """Seconds from the first speech sample to the end of the last."""
        return (self.speech_end_sample - self.speech_start_sample + 1) / self.sample_rate_hz

    @property
    def length(self) -> LengthClass:
        """Short below 2 s of speech, long above 6 s, medium between; silence around the speech does not count."""
        if self.speech_s < SHORT_BELOW_S:
            return "short"
        return "long" if self.speech_s > LONG_ABOVE_S else "medium"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A valid manifest; `lines` are the line numbers of the utterances, from 1."""

    name: str
    kind: CorpusKind
    edges: Edges
    utterances: tuple[Utterance, ...]
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Header:
    corpus: str
    kind: CorpusKind
    format: float  # 2.0 is accepted, too
    edges: Edges = DEFAULT_EDGES


_TEXT: Final = one_line_rule(_MAX_TEXT_CHARS)
_TEXT_OR_NULL: Final = one_line_rule(_MAX_TEXT_CHARS, ", or null")
_COUNT: Final = Rule("a whole number of samples, at least 0", {"ge": 0})
_UNCERTAINTY: Final = Rule(
    f"a number of milliseconds from 0 to {_MAX_UNCERTAINTY_MS:g}, or null if it is not known",
    {"ge": 0, "le": _MAX_UNCERTAINTY_MS},
)
_PII_KINDS: Final = ", ".join(get_args(PiiKind))
# A part of a path that is not empty, "." or "..", without colon, backslash and control characters.
_PATH_PART: Final = r"(?:[^.{0}][^{0}]*|\.[^.{0}][^{0}]*|\.\.[^{0}]+)".replace("{0}", r"/\\:\x00-\x1f\x7f")
_HEADER_CHECKER: Final = RowChecker(
    _Header,
    {
        "corpus": NAME_RULE,
        "kind": Rule(f"one of {', '.join(get_args(CorpusKind))}"),
        "format": Rule(f"{FORMAT}, the format that this version reads", {"ge": FORMAT, "le": FORMAT}),
        "edges": Rule(f"{' or '.join(get_args(Edges))}"),
    },
    unknown_keys="ignore",
)
_UTTERANCE_CHECKER: Final = RowChecker(
    Utterance,
    {
        "id": NAME_RULE,
        # "." is accepted here; reading the clip then fails because it is not a file.
        "path": Rule(
            "a file in the corpus folder, relative to it and with forward slashes, such as clips/one.flac; "
            "'.', '..', colons and control characters are not allowed",
            {"pattern": rf"^(?:{_PATH_PART}(?:/{_PATH_PART})*|\.)$"},
        ),
        "text": one_line_rule(_MAX_TEXT_CHARS, ", or null if nobody wrote it down"),
        "speaker": _TEXT,
        "language": _TEXT,
        "domain": _TEXT,
        "license": _TEXT,
        "source": _TEXT,
        "sha256": Rule("64 lowercase hexadecimal digits", {"pattern": "^[0-9a-f]{64}$"}),
        "sample_rate_hz": Rule(
            f"a whole number from {RATES_HZ[0]} to {RATES_HZ[-1]}", {"ge": RATES_HZ[0], "le": RATES_HZ[-1]}
        ),
        "samples": _COUNT,
        "speech_start_sample": _COUNT,
        "speech_end_sample": _COUNT,
        "consent": _TEXT_OR_NULL,
        "bounds_confidence_db": Rule("a number of decibels, or null if a person set the bounds"),
        "speech_start_uncertainty_ms": _UNCERTAINTY,
        "speech_end_uncertainty_ms": _UNCERTAINTY,
        # JSON has lists only; the tuple of `Utterance` is made from one.
        "pii_kinds": Rule(f"a list of any of {_PII_KINDS}", {"strict": False}, item_must_be=f"one of {_PII_KINDS}"),
        "processing": _TEXT_OR_NULL,
        "reviewed": Rule("true or false"),
    },
)
_BOUNDS: Final = ("speech_start_sample", "speech_end_sample", "samples")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder without reading its clips.

    Raises ManifestError with every fault in it.
    """
    file = folder / MANIFEST_NAME
    if not file.is_file():
        fault = f"{folder}: contains no {MANIFEST_NAME}, so it is not a corpus; give a folder that has one."
        raise ManifestError(file, [fault])
    faults: list[str] = []
    header: Row | None = None
    utterances: list[Utterance] = []
    lines: list[int] = []
    duplicates = DuplicateFinder()
    for number, _, row in decode_rows(file, read_bounded(file, _MAX_MANIFEST_BYTES), faults):
        if number == 1:
            header = row
            faults += _header_faults(header, file)
            continue
        row_faults = _utterance_faults(row, number, duplicates)
        if row_faults:
            faults += [f"{file}:{number}: {row_label(row)}: {fault}" for fault in row_faults]
        else:
            utterances.append(msgspec.convert(row, Utterance))
            lines.append(number)
    if header is None:
        begin = '{"corpus": NAME, "kind": "recorded human" or "generated", "format": 2}'
        after_line_1 = int(bool(faults) and faults[0].startswith(f"{file}:1:"))
        faults.insert(after_line_1, f"{file}:1: is not the header of a manifest; begin the file with {begin}.")
    if not utterances and not faults:
        faults.append(f"{file}: contains no utterance; add at least one line after the header.")
    if header is None or faults:
        raise ManifestError(file, faults)
    edges = cast("Edges", header.get("edges", DEFAULT_EDGES))
    return Manifest(str(header["corpus"]), cast("CorpusKind", header["kind"]), edges, tuple(utterances), tuple(lines))


def write_manifest(folder: Path, name: str, kind: CorpusKind, utterances: Iterable[Utterance], *, edges: Edges) -> None:
    """Write a folder's manifest atomically, in the order given; the same utterances give the same bytes."""
    header = {"corpus": name, "kind": kind, "format": FORMAT, "edges": edges}
    rows = [msgspec.json.encode(row) for row in (header, *map(_row, utterances))]
    replace_file(folder / MANIFEST_NAME, b"\n".join(rows) + b"\n")


def replace_file(file: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new, never a part."""
    with tempfile.NamedTemporaryFile(prefix=f".{file.name}-", dir=file.parent, delete=False) as fresh:
        try:
            fresh.write(content)
            fresh.flush()
            os.fsync(fresh.fileno())
            # Only the owner may read a temporary file; everyone may read a corpus.
            os.fchmod(fresh.fileno(), 0o644)
            Path(fresh.name).replace(file)
        except BaseException:  # an interruption must not leave the temporary file behind either
            Path(fresh.name).unlink(missing_ok=True)
            raise


def _row(utterance: Utterance) -> dict[str, object]:
    row = cast("dict[str, object]", msgspec.to_builtins(utterance))
    if utterance.processing is None:
        del row["processing"]
    if not utterance.reviewed:
        del row["reviewed"]
    return row


def _header_faults(header: Row, file: Path) -> list[str]:
    version = header.get("format")
    if type(version) is int and version != FORMAT:  # its lines follow other rules
        problem = f"{file}:1: has format {shown(version)}, but this version reads format {FORMAT}"
        raise ManifestError(file, [f"{problem}; install, import or build the corpus again."])
    return [f"{file}:1: header: {fault.sentence}" for fault in _HEADER_CHECKER.find_faults(header)]


def _utterance_faults(row: Row, line: int, duplicates: DuplicateFinder) -> list[str]:
    faults = _UTTERANCE_CHECKER.find_faults(row)
    sentences = [fault.sentence for fault in faults]
    faulty = {fault.key for fault in faults}
    if faulty.isdisjoint(_BOUNDS):
        start, end, samples = (cast("int", row[key]) for key in _BOUNDS)
        if not start < end < samples:
            sentences.append(
                f"speech_start_sample {shown(start)} and speech_end_sample {shown(end)} do not lie within its "
                f"{shown(samples)} samples; the start must be less than the end, and the end less than samples."
            )
    for key in ("id", "path"):
        if key not in faulty:
            sentences += duplicates.find(key, cast("str", row[key]), line)
    return sentences
