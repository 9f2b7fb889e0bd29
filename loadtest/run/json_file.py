"""The files of `--json` and its like: whole or not at all."""

import json
from pathlib import Path
from typing import Any

from corpora.output_paths import write_whole
from loadtest.errors import OutputError


def write_json(file: Path, value: dict[str, Any]) -> None:
    """Write an object to a file, atomically; to a pipe or a terminal as it is. Raises OutputError."""
    write_result(file, (json.dumps(value, indent=2) + "\n").encode())


def write_result(file: Path, content: bytes) -> None:
    """Write what is no JSON object likewise. Raises OutputError."""
    try:
        write_whole(file, content)
    except OSError as error:
        raise OutputError(f"{file} could not be written: {error.strerror}; make room or name another place") from None
