"""Reading of the text files of a source: tables, lists and JSON lines. Their size is limited; they are read whole."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import msgspec

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.tree import is_audio

MAX_BYTES = 256 * 1024 * 1024
_BYTE_ORDER_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
Row = Mapping[str, str]


def read_text(file: Path, label: str) -> str:
    """Read a text file in UTF-8, UTF-16 or UTF-32, decompressed if its name ends with .gz.

    Raises CorpusError if it is larger than 256 MB, cannot be read or is not text.
    """
    try:
        with file.open("rb") as raw:
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if file.suffix.lower() == ".gz" else raw
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise CorpusError(f"{label}: is larger than {MAX_BYTES >> 20} MB; split it.")
        text = content.decode(_encoding_of(content))
    except UnicodeDecodeError as error:
        name = "UTF-8" if error.encoding.startswith("utf-8") else error.encoding.upper()
        raise CorpusError(f"{label}: is not {name} text (byte {error.start}); convert it to UTF-8.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{label}: cannot be read ({error}); check the file.") from error
    if "\x00" in text:
        raise CorpusError(f"{label}: contains NUL characters, so it is not text; save it as UTF-8.")
    return text


def _encoding_of(content: bytes) -> str:
    """The encoding of a text: UTF-8, unless a byte order mark or alternating zero bytes show UTF-16 or UTF-32."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return encoding
    begin = content[:1_024]
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        # Latin letters, digits and separators have one zero byte each, always on the same side.
        halves = begin[first::2], begin[1 - first :: 2]
        if halves[0].count(0) > 0.4 * len(halves[0]) > 0 and not halves[1].count(0):
            return encoding
    return "utf-8-sig"


def read_lines(file: Path, label: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file that are not empty, stripped, each with its number.

    Only a line feed ends a line, not the other line boundaries of Unicode. Raises CorpusError.
    """
    for number, line in enumerate(read_text(file, label).split("\n"), start=1):
        if line.strip():
            yield number, line.strip()


def read_table(file: Path, label: str) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a CSV or TSV with a header, each with its line; column names are in lower case.

    Raises CorpusError if the file is not a table.
    """
    text = read_text(file, label)
    delimiter = _delimiter(text.split("\n", 1)[0])
    # In TSV files, quotation marks are part of the text; in CSV files, they belong to the format.
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=True)
    begin = 1  # the first line of the current row
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        begin = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                if len(cells) > len(header):
                    raise CorpusError(
                        f"{label}:{begin}: has {len(cells)} cells, the header has {len(header)}; "
                        "quote texts that contain the separator."
                    )
                if any(_holds_a_row(cell, delimiter) for cell in cells):
                    raise CorpusError(
                        f"{label}:{begin}: a quoted text continues to line {reader.line_num} and contains a row that "
                        "names a recording; close the quotation mark, or double it."
                    )
                yield reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=False))
            begin = reader.line_num + 1
    except csv.Error as error:
        raise CorpusError(f"{label}:{begin}: {_quoting_fault(str(error))}") from error


def _holds_a_row(cell: str, delimiter: str) -> bool:
    """Return whether a quoted text of several lines contains another row, so that one of its lines names a
    recording."""
    lines = cell.splitlines()[1:]
    parts = (part.strip().strip('"') for line in lines if delimiter in line for part in line.split(delimiter))
    return any(is_audio(PurePosixPath(part)) for part in parts)


def _quoting_fault(reason: str) -> str:
    if reason == "unexpected end of data" or reason.startswith("field larger"):
        return "a quotation mark in this row is never closed; close it, or double it."
    if "expected after" in reason:
        return "text follows a closing quotation mark in this row; double quotation marks inside a text."
    return f"is not a table ({reason}); correct it."


def read_header(file: Path, label: str) -> frozenset[str]:
    """Read the column names of a table in lower case. Raises CorpusError if the file cannot be read."""
    try:
        with file.open("rb") as raw:
            content = raw.read(65_536)
    except OSError as error:
        raise CorpusError(f"{label}: cannot be read ({error.strerror}); check the file.") from error
    head = content.decode(_encoding_of(content), "replace").split("\n", 1)[0]
    return frozenset(cell.strip().strip('"').lower() for cell in head.split(_delimiter(head)))


def _delimiter(head: str) -> str:
    return "\t" if "\t" in head else max(",;|", key=head.count)


def read_objects(file: Path, label: str) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the JSON objects of a file, one per line or in one array, each with its line or position in the array.

    A line that is not an object is None. Raises CorpusError if the file cannot be read.
    """
    text = read_text(file, label)
    if text.lstrip().startswith("["):
        whole = _decoded(text)
        if not isinstance(whole, list):
            raise CorpusError(f"{label}: starts like a JSON array but is not one; correct it.")
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
    """The first of some fields that is a non-empty text or an integer, as text; None if all are missing."""
    for name in names:
        value = row.get(name)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return None


def number(row: Mapping[str, Any], *names: str) -> float | None:
    """The first of some fields that has a value, as a number of at least 0; None if all are missing.

    Raises CorpusError if it is anything else.
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
            raise CorpusError(f"{name} is {str(value)[:50]!r}; it must be a number of at least 0.")
        return figure
    return None
