"""The text files of a source: tables, lists and lines of JSON, read whole because they are bounded."""

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
_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
Row = Mapping[str, str]


def read_text(file: Path, called: str) -> str:
    """A whole text file in UTF-8 or UTF-16, gunzipped where its name ends so.

    Raises CorpusError when it is larger than 256 MB, cannot be read or is no text.
    """
    try:
        with file.open("rb") as raw:
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if file.suffix == ".gz" else raw
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise CorpusError(f"{called}: is larger than {MAX_BYTES >> 20} MB; split it.")
        text = content.decode(_encoding_of(content))
    except UnicodeDecodeError as error:
        name = "UTF-8" if error.encoding.startswith("utf-8") else error.encoding.upper()
        raise CorpusError(f"{called}: is not text in {name} (byte {error.start}); convert it to UTF-8.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{called}: cannot be read ({error}); check the file.") from error
    if "\x00" in text:
        raise CorpusError(f"{called}: holds NUL characters, so it is not text as it stands; save it as UTF-8.")
    return text


def _encoding_of(content: bytes) -> str:
    """UTF-8 unless a byte order mark, or a zero in every other byte, says that it is UTF-16 or UTF-32."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return encoding
    begin = content[:1_024]
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        # Latin letters, digits and separators: zeros on one side, and none on the other.
        halves = begin[first::2], begin[1 - first :: 2]
        if halves[0].count(0) > 0.4 * len(halves[0]) > 0 and not halves[1].count(0):
            return encoding
    return "utf-8-sig"


def read_lines(file: Path, called: str) -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not empty, without white space at their ends, each with its number. Lines end
    with a line feed, and with nothing else that Unicode knows to end one. Raises CorpusError."""
    for number, line in enumerate(read_text(file, called).split("\n"), start=1):
        if line.strip():
            yield number, line.strip()


def read_table(file: Path, called: str) -> Iterator[tuple[int, Row]]:
    """The rows of a CSV or TSV with a header, each with its line; names of columns are in lower case.

    Raises CorpusError when it is no table.
    """
    text = read_text(file, called)
    delimiter = _delimiter(text.split("\n", 1)[0])
    # Transcripts in TSV files hold quotation marks of their own; in CSV files the marks belong to the format.
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting, strict=True)
    begin = 1  # the line on which the row at hand begins
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        begin = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                if len(cells) > len(header):
                    raise CorpusError(
                        f"{called}:{begin}: has {len(cells)} cells, the header has {len(header)}; "
                        "put texts that hold the separator into quotation marks."
                    )
                if any(_holds_a_row(cell, delimiter) for cell in cells):
                    raise CorpusError(
                        f"{called}:{begin}: a quoted text goes on to line {reader.line_num}, and a row that names a "
                        "recording is in it; close the quotation mark, or double it."
                    )
                yield reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=False))
            begin = reader.line_num + 1
    except csv.Error as error:
        raise CorpusError(f"{called}:{begin}: {_of_quotes(str(error))}") from error


def _holds_a_row(cell: str, delimiter: str) -> bool:
    """Whether a quoted text of several lines has swallowed another row: then one of its lines names a recording."""
    lines = cell.splitlines()[1:]
    parts = (part.strip().strip('"') for line in lines if delimiter in line for part in line.split(delimiter))
    return any(is_audio(PurePosixPath(part)) for part in parts)


def _of_quotes(reason: str) -> str:
    if reason == "unexpected end of data" or reason.startswith("field larger"):
        return "a quotation mark that is opened in this row is never closed; close it, or double it."
    if "expected after" in reason:
        return "text follows a closing quotation mark in this row; double the marks inside a text."
    return f"is not a table ({reason}); correct it."


def read_header(file: Path, called: str) -> frozenset[str]:
    """The names of a table's columns in lower case; none where it cannot be read as one."""
    try:
        with file.open("rb") as raw:
            content = raw.read(65_536)
    except OSError as error:
        raise CorpusError(f"{called}: cannot be read ({error.strerror}); check the file.") from error
    head = content.decode(_encoding_of(content), "replace").split("\n", 1)[0]
    return frozenset(cell.strip().strip('"').lower() for cell in head.split(_delimiter(head)))


def _delimiter(head: str) -> str:
    return "\t" if "\t" in head else max(",;|", key=head.count)


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
