"""Reading of the texts to synthesize from CSV, TSV or JSON lines. All faults of the file are reported at once."""

import csv
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast, get_args

import msgspec

from corpora.manifest.errors import CorpusError, ManifestError
from corpora.manifest.manifest import PiiKind

COLUMNS: Final = ("text", "id", "domain", "language", "voice")
BUNDLED_COLUMNS: Final = (*COLUMNS, "stretch", "pii_kinds")
MAX_CHARACTERS: Final = 2_000
MAX_TEXTS: Final = 100_000
_MAX_BYTES: Final = 64 * 1024 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_STRETCHES: Final = (0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Text:
    """One text to synthesize. If `voice` is None, the voice of the command is used."""

    id: str
    text: str
    domain: str
    language: str
    voice: str | None
    stretch: float = 1.0  # duration relative to the voice's own
    pii_kinds: tuple[PiiKind, ...] = ()


def read_texts(file: Path, *, domain: str, language: str, columns: Sequence[str] = COLUMNS) -> list[Text]:
    """Read the texts; `domain` and `language` are defaults for texts without them.

    A CSV or TSV has a header; `text` is required, the other `columns` are optional. The id of a text without one is
    derived from its words. Raises ManifestError with every fault.
    """
    faults: list[str] = []
    texts: list[Text] = []
    line_by_id: dict[str, int] = {}
    for line, row in _rows(file):
        text = (row.get("text") or "").strip()
        row_faults = _faults(row, text, columns)
        name = (row.get("id") or "").strip() or name_for(text)
        earlier = line_by_id.setdefault(name.casefold(), line)
        if earlier != line:
            row_faults.append(f"the id {name!r} is already used in line {earlier}; ids must be unique")
        faults += [f"{file}:{line}: {fault}." for fault in row_faults]
        texts.append(
            Text(
                name,
                text,
                row.get("domain") or domain,
                row.get("language") or language,
                row.get("voice") or None,
                _stretch(row),
                cast("tuple[PiiKind, ...]", _pii_kinds(row)),
            )
        )
        if len(texts) > MAX_TEXTS:
            raise ManifestError(file, [f"{file}: contains more than {MAX_TEXTS} texts; split it."])
    if not texts:
        faults.append(f"{file}: contains no text; provide a CSV with a column `text`, or JSON lines with that field.")
    if faults:
        raise ManifestError(file, faults)
    return texts


def name_for(text: str) -> str:
    """Derive a name from the first words of a text and a short hash of all of it."""
    words = "-".join(re.findall(r"[a-z0-9]+", text.lower())[:4])[:40]
    return f"{words or 'text'}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _stretch(row: dict[str, str | None]) -> float:
    try:
        return float(row.get("stretch") or 1.0)
    except ValueError:
        return 0.0


def _pii_kinds(row: dict[str, str | None]) -> tuple[str, ...]:
    return tuple(kind for kind in (row.get("pii_kinds") or "").split(";") if kind)


def _faults(row: dict[str, str | None], text: str, columns: Sequence[str]) -> list[str]:
    unknown = sorted(set(row) - set(columns))
    faults = [f"the column {name!r} is unknown; use any of {', '.join(columns)}" for name in unknown]
    if not _STRETCHES[0] <= _stretch(row) <= _STRETCHES[1]:
        faults.append(f"stretch must be a number from {_STRETCHES[0]:g} to {_STRETCHES[1]:g}")
    if not set(_pii_kinds(row)) <= set(get_args(PiiKind)):
        faults.append(f"pii_kinds may be any of {', '.join(get_args(PiiKind))}, joined by semicolons")
    if not text:
        faults.append("has no text; add one")
    if len(text) > MAX_CHARACTERS or _CONTROL.search(text):
        faults.append(f"its text must be one line of at most {MAX_CHARACTERS} characters")
    name = (row.get("id") or "").strip()
    if name and not _NAME.fullmatch(name):
        faults.append(f"the id {name!r} must be 1 to 100 letters, digits, dots, dashes or underscores")
    return faults


def _rows(file: Path) -> Iterator[tuple[int, dict[str, str | None]]]:
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise ManifestError(file, [f"{file}: is larger than {_MAX_BYTES >> 20} MB; split it."])
        content = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file}: is not UTF-8 text ({error.reason}); save it as UTF-8.") from error
    except OSError as error:
        raise CorpusError(f"{file}: cannot be read ({error.strerror}); give a file of texts.") from error
    if file.suffix.lower() in (".jsonl", ".ndjson"):
        yield from _json_rows(file, content)
        return
    reader = csv.DictReader(content.splitlines(), delimiter="\t" if file.suffix.lower() == ".tsv" else ",", strict=True)
    try:
        for row in reader:
            cells = cast("dict[str | None, str | None]", row)
            if None in cells:
                raise CorpusError(f"{file}:{reader.line_num}: has too many columns; quote texts that contain commas.")
            yield reader.line_num, {str(name): value for name, value in cells.items()}
    except csv.Error as error:
        raise CorpusError(
            f"{file}:{reader.line_num}: is not a valid CSV line ({error}); correct its quotes."
        ) from error


def _json_rows(file: Path, content: str) -> Iterator[tuple[int, dict[str, str | None]]]:
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line, type=dict[str, str | None])
            except msgspec.DecodeError as error:
                raise CorpusError(f"{file}:{number}: is not a JSON object of strings ({error}); correct it.") from error
