"""Reads the JSON-lines files of a corpus: one JSON object per line, in UTF-8."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec

from corpora.manifest.errors import ManifestError
from corpora.manifest.validation import Row


def read_bounded(file: Path, max_bytes: int) -> bytes:
    """Read a file of at most so many bytes. Raises ManifestError."""
    try:
        if file.stat().st_size > max_bytes:
            fault = f"{file}: is larger than {max_bytes >> 20} MB; split the corpus into several folders."
            raise ManifestError(file, [fault])
        return file.read_bytes()
    except OSError as error:
        raise ManifestError(file, [f"{file}: cannot be read ({error.strerror}); check its permissions."]) from error


def decode_rows(file: Path, content: bytes, faults: list[str]) -> Iterator[tuple[int, bytes, Row]]:
    """Yield the number (from 1), the bytes and the object of each line that is not blank.

    The faults of lines that are not JSON objects are appended. If an object repeats a key, the last value counts.
    """
    for number, line in enumerate(io.BytesIO(content), start=1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            faults.append(f"{file}:{number}: is not JSON in UTF-8 ({error}); write one JSON object per line.")
            continue
        if isinstance(row, dict):
            yield number, line, cast("Row", row)
        else:
            faults.append(f"{file}:{number}: is not a JSON object; write one per line, in braces.")
