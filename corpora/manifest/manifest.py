"""The manifest of a corpus: what is known about each utterance, pinned to the very bytes of its clip.

A corpus is a folder with a `manifest.jsonl` (UTF-8, one JSON object a line) and the clips it names. The first line is
the header, `{"corpus": NAME, "kind": "recorded human" | "generated", "format": 2}`; each further line is one utterance
with the fields of `Utterance` (those with a default may be left out). `text` is null where nobody wrote down what is
said; word errors are then not measured. This file checks the words of the manifest; `clips` checks the audio against
them.
"""

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, cast, get_args

import msgspec

from corpora.manifest.errors import ManifestError

MANIFEST_NAME = "manifest.jsonl"
FORMAT = 2

CorpusKind = Literal["recorded human", "generated"]
LengthClass = Literal["short", "medium", "long"]
PiiKind = Literal["name", "address", "phone", "email", "card_number", "account_number", "date_of_birth"]

SHORT_BELOW_S = 2.0
LONG_ABOVE_S = 6.0

_MAX_MANIFEST_BYTES = 256 * 1024 * 1024
_MAX_TEXT_CHARS = 10_000
_MAX_UNCERTAINTY_MS = 600_000.0  # no clip is longer
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_TEXTS = ("text", "speaker", "language", "domain", "license", "source")
_COUNTS = ("sample_rate_hz", "samples", "speech_start_sample", "speech_end_sample")
_REQUIRED = ("id", "path", *_TEXTS, "sha256", *_COUNTS)
_NULLABLE = ("text", "consent", "processing")
_UNCERTAINTIES = ("speech_start_uncertainty_ms", "speech_end_uncertainty_ms")
_OPTIONAL = ("consent", "processing", "bounds_confidence_db", *_UNCERTAINTIES, "reviewed", "pii_kinds")
RATES_HZ = range(8_000, 48_001)


@dataclass(frozen=True, slots=True)
class Utterance:
    """One thing a caller says, and where in its clip the speech is."""

    id: str
    path: str  # relative to the manifest, with forward slashes
    text: str | None  # what is said; None where it was not written down
    speaker: str
    language: str  # BCP 47, as in en-US
    domain: str
    license: str  # SPDX, as in CC0-1.0
    source: str
    sha256: str  # of the clip's file, in lower-case hex
    sample_rate_hz: int
    samples: int
    speech_start_sample: int  # the first speech sample
    speech_end_sample: int  # the last speech sample itself, not the one after it
    consent: str | None = None  # how the speaker agreed to this use; None where it is not known or nobody spoke
    bounds_confidence_db: float | None = None  # speech over floor when the bounds were found; None: set by a human
    # How far the bounds may be off, as half-widths of 95 % intervals; None: not known.
    speech_start_uncertainty_ms: float | None = None
    speech_end_uncertainty_ms: float | None = None
    pii_kinds: tuple[PiiKind, ...] = ()
    processing: str | None = None  # what was done to the recording before it became this clip
    reviewed: bool = False  # whether a person has looked at the bounds

    @property
    def pii(self) -> bool:
        """Whether the text holds personal data, be it made up."""
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
    """A manifest whose words are in order; `lines` holds the line number of each utterance."""

    name: str
    kind: CorpusKind
    utterances: tuple[Utterance, ...]
    lines: tuple[int, ...]


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder without looking at its clips.

    Raises ManifestError with every fault in it.
    """
    file = folder / MANIFEST_NAME
    header, rows, faults = _read_rows(file)
    form = header.get("format")
    if type(form) is int and form != FORMAT:  # its lines follow other rules
        why = f"{file}:1: has format {form}, this version reads {FORMAT}; install, import or build the corpus again."
        raise ManifestError(file, [why])
    name, kind = _check_header(header, f"{file}:1", faults)
    utterances: list[Utterance] = []
    lines: list[int] = []
    for line, row in rows:
        found = _check_row(row)
        where = f"{file}:{line}: {_called(row)}"
        faults += [f"{where}: {fault}" for fault in found]
        if not found:
            utterances.append(_utterance(row))
            lines.append(line)
    faults += _duplicates(file, utterances, lines)
    if not rows and not faults:
        faults.append(f"{file}: lists no utterance; add at least one line after the header.")
    if faults:
        raise ManifestError(file, faults)
    return Manifest(name, kind, tuple(utterances), tuple(lines))


def write_manifest(folder: Path, name: str, kind: CorpusKind, utterances: Iterable[Utterance]) -> None:
    """Write a folder's manifest in one step, in the order given and with the same bytes for the same utterances."""
    header = {"corpus": name, "kind": kind, "format": FORMAT}
    rows = [msgspec.json.encode(row) for row in (header, *map(_row, utterances))]
    replace_file(folder / MANIFEST_NAME, b"\n".join(rows) + b"\n")


def replace_file(file: Path, content: bytes) -> None:
    """Write a whole file in one step: who reads it sees what was there or what is there now, never a part."""
    with tempfile.NamedTemporaryFile(prefix=f".{file.name}-", dir=file.parent, delete=False) as fresh:
        try:
            fresh.write(content)
            fresh.flush()
            os.fsync(fresh.fileno())
            # Temporary files are for their owner alone; a corpus is not.
            os.fchmod(fresh.fileno(), 0o644)
            Path(fresh.name).replace(file)
        except BaseException:
            Path(fresh.name).unlink(missing_ok=True)
            raise


def _row(utterance: Utterance) -> dict[str, object]:
    row = cast("dict[str, object]", msgspec.to_builtins(utterance))
    if utterance.processing is None:
        del row["processing"]
    if not utterance.reviewed:
        del row["reviewed"]
    return row


def _read_rows(file: Path) -> tuple[Mapping[str, object], list[tuple[int, Mapping[str, object]]], list[str]]:
    if not file.is_file():
        fault = f"{file.parent}: holds no {MANIFEST_NAME}, so it is not a corpus; name a folder that has one."
        raise ManifestError(file, [fault])
    try:
        if file.stat().st_size > _MAX_MANIFEST_BYTES:
            fault = f"{file}: is larger than {_MAX_MANIFEST_BYTES >> 20} MB; split the corpus into several folders."
            raise ManifestError(file, [fault])
        content = file.read_bytes()
    except OSError as error:
        raise ManifestError(file, [f"{file}: cannot be read ({error.strerror}); check its permissions."]) from error
    rows: list[tuple[int, Mapping[str, object]]] = []
    faults: list[str] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            faults.append(f"{file}:{number}: is not JSON in UTF-8 ({error}); each line holds one JSON object.")
            continue
        if isinstance(row, dict):
            rows.append((number, cast("dict[str, object]", row)))
        else:
            faults.append(f"{file}:{number}: is not a JSON object; each line holds one, in braces.")
    if rows and rows[0][0] == 1:
        return rows[0][1], rows[1:], faults
    return {}, rows, faults


def _check_header(header: Mapping[str, object], where: str, faults: list[str]) -> tuple[str, CorpusKind]:
    name, kind, form = header.get("corpus"), header.get("kind"), header.get("format")
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        faults.append(f'{where}: the header names no corpus; begin with {{"corpus": NAME, "kind": KIND, "format": 2}}.')
    if kind not in get_args(CorpusKind):
        faults.append(f"{where}: the header's kind is {kind!r}; it is one of {_listed(get_args(CorpusKind))}.")
    if form != FORMAT or isinstance(form, bool):
        faults.append(f"{where}: the header's format is {form!r}; this version reads format {FORMAT}.")
    return str(name), cast("CorpusKind", kind)


def _check_row(row: Mapping[str, object]) -> list[str]:
    faults = [f"the field {field} is missing." for field in _REQUIRED if field not in row]
    known = {*_REQUIRED, *_OPTIONAL}
    faults += [f"the field {field!r} is unknown; check its spelling." for field in row if field not in known]
    if "id" in row and not (isinstance(row["id"], str) and _NAME.fullmatch(row["id"])):
        faults.append(
            "id must be 1 to 100 letters, digits, dots, dashes or underscores, beginning with one of the first."
        )
    for field in (field for field in (*_TEXTS, "consent", "processing") if field in row):
        if not (field in _NULLABLE and row[field] is None):
            faults += _check_text(field, row[field])
    if not isinstance(row.get("reviewed", False), bool):
        faults.append("reviewed must be true or false.")
    if "path" in row:
        faults += _check_path(row["path"])
    if "sha256" in row and not (isinstance(row["sha256"], str) and _SHA256.fullmatch(row["sha256"])):
        faults.append("sha256 must be 64 lower-case hex digits.")
    return faults + _check_numbers(row) + _check_pii(row.get("pii_kinds", []))


def _check_text(field: str, value: object) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return [f"{field} must be a text that is not empty."]
    if len(value) > _MAX_TEXT_CHARS or _CONTROL.search(value):
        return [f"{field} must be one line of at most {_MAX_TEXT_CHARS} characters, without control characters."]
    return []


def _check_path(value: object) -> list[str]:
    if not isinstance(value, str) or not value or _CONTROL.search(value):
        return ["path must be the clip's file, relative to the manifest."]
    if "\\" in value or value.startswith("/") or ":" in value or str(PurePosixPath(value)) != value:
        return [f"path {value!r} must be plain and relative to the manifest, with forward slashes."]
    if ".." in PurePosixPath(value).parts:
        return [f"path {value!r} leads out of the corpus; keep the clips in its folder."]
    return []


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_uncertainty(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MAX_UNCERTAINTY_MS


def _check_numbers(row: Mapping[str, object]) -> list[str]:
    counts = {field: row[field] for field in _COUNTS if field in row}
    wrong = [field for field, value in counts.items() if not _is_count(value)]
    faults = [f"{field} must be a whole number, at least 0." for field in wrong]
    confidence = row.get("bounds_confidence_db")
    if confidence is not None and (isinstance(confidence, bool) or not isinstance(confidence, (int, float))):
        faults.append("bounds_confidence_db must be a number of decibels, or null.")
    faults += [
        f"{field} must be a number of milliseconds from 0 to {_MAX_UNCERTAINTY_MS:g}, or null where it is not known."
        for field in _UNCERTAINTIES
        if not _is_uncertainty(row.get(field))
    ]
    if wrong or len(counts) != len(_COUNTS):
        return faults
    rate_hz, samples, start, end = (cast("int", counts[field]) for field in _COUNTS)
    if rate_hz not in RATES_HZ:
        faults.append(f"sample_rate_hz is {rate_hz}; it must be from {RATES_HZ[0]} to {RATES_HZ[-1]}.")
    if not start < end < samples:
        faults.append(
            f"the speech bounds {start} to {end} do not lie within its {samples} samples; "
            "start must come before end, and end before the number of samples."
        )
    return faults


def _check_pii(value: object) -> list[str]:
    kinds = get_args(PiiKind)
    if not isinstance(value, list):
        return [f"pii_kinds must be a list of any of {_listed(kinds)}."]
    unknown = [kind for kind in cast("list[object]", value) if kind not in kinds]
    return [f"pii_kinds holds {kind!r}; known are {_listed(kinds)}." for kind in unknown]


def _utterance(row: Mapping[str, object]) -> Utterance:
    return msgspec.convert(row, Utterance)


def _duplicates(file: Path, utterances: Iterable[Utterance], lines: Iterable[int]) -> list[str]:
    first_by_id: dict[str, int] = {}
    first_by_path: dict[str, int] = {}
    faults: list[str] = []
    for utterance, line in zip(utterances, lines, strict=True):
        # Ids and files are compared without case: the same corpus must work on file systems that ignore it.
        for what, value, seen in (("id", utterance.id, first_by_id), ("path", utterance.path, first_by_path)):
            earlier = seen.setdefault(value.casefold(), line)
            if earlier != line:
                where = f"{file}:{line}: {utterance.id}"
                faults.append(f"{where}: {what} {value!r} is taken by line {earlier} already; each must be unique.")
    return faults


def _called(row: Mapping[str, object]) -> str:
    return str(row.get("id", "?"))[:100]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
