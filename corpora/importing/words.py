"""The text files of a source: tables, lists and lines of JSON, read whole because they are bounded."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from corpora.errors import CorpusError

MAX_BYTES = 256 * 1024 * 1024
Row = Mapping[str, str]


def read_text(file: Path, called: str) -> str:
    """A whole text file in UTF-8, gunzipped where its name ends so.

    Raises CorpusError when it is larger than 256 MB, cannot be read or is no text.
    """
    try:
        with file.open("rb") as raw:
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if file.suffix == ".gz" else raw
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise CorpusError(f"{called}: is larger than {MAX_BYTES >> 20} MB; split it.")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{called}: is not text in UTF-8 (byte {error.start}); convert it.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{called}: cannot be read ({error}); check the file.") from error


def read_table(file: Path, called: str) -> Iterator[tuple[int, Row]]:
    """The rows of a CSV or TSV with a header, each with its line; names of columns are in lower case.

    Raises CorpusError when it is no table.
    """
    text = read_text(file, called)
    head = text.split("\n", 1)[0]
    delimiter = "\t" if "\t" in head else max(",;|", key=head.count)
    # Transcripts in TSV files hold quotation marks of their own; in CSV files the marks belong to the format.
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        for cells in reader:
            if any(cell.strip() for cell in cells):
                if len(cells) > len(header):
                    raise CorpusError(
                        f"{called}:{reader.line_num}: has {len(cells)} cells, the header has {len(header)}; "
                        "put texts that hold the separator into quotation marks."
                    )
                yield reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=False))
    except csv.Error as error:
        raise CorpusError(f"{called}:{reader.line_num}: is not a table ({error}); correct it.") from error


def read_header(file: Path, called: str) -> frozenset[str]:
    """The names of a table's columns in lower case; none where it cannot be read as one."""
    try:
        with file.open("rb") as raw:
            head = raw.read(65_536).decode("utf-8-sig", "replace").split("\n", 1)[0]
    except OSError as error:
        raise CorpusError(f"{called}: cannot be read ({error.strerror}); check the file.") from error
    delimiter = "\t" if "\t" in head else max(",;|", key=head.count)
    return frozenset(cell.strip().strip('"').lower() for cell in head.split(delimiter))


def read_objects(file: Path, called: str) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The JSON objects of a file with one a line, or of one JSON array, each with its line (or place in the array);
    None stands for a line that is no object."""
    text = read_text(file, called)
    if text.lstrip().startswith("["):
        whole = _decoded(text)
        if not isinstance(whole, list):
            raise CorpusError(f"{called}: is not a JSON array though it begins like one; correct it.")
        yield from ((number, _object(row)) for number, row in enumerate(cast("list[object]", whole), start=1))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _object(_decoded(line))


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def _object(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def string(row: Mapping[str, Any], *names: str) -> str | None:
    """The first of some fields that holds something, as text."""
    for name in names:
        value = row.get(name)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return None


def number(row: Mapping[str, Any], *names: str) -> float | None:
    """The first of some fields that is given, as a finite number from 0 up.

    Raises CorpusError when it is something else.
    """
    for name in names:
        value = row.get(name)
        if value is None or value == "":
            continue
        try:
            figure = float(value)
        except (TypeError, ValueError):
            figure = -1.0
        if not 0.0 <= figure < 1e9:
            raise CorpusError(f"{name} is {str(value)[:50]!r}; it must be a number from 0 up.")
        return figure
    return None
