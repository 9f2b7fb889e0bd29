"""Transcripts that a recognizer sent in an earlier run, as a file: one line of JSON for each utterance.

    {"utterance": "lights-1", "partials": [[180.5, "turn"], [420.0, "turn it"]], "final": [910.2, "turn it on"]}

Times are in ms after the utterance's first speech sample, each with the whole text that was recognized by then.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

import msgspec

_MAX_BYTES: Final = 256 * 2**20
Heard = tuple[float, str]


class RecordedUtterance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The partial transcripts of one utterance, with their times."""

    utterance: Annotated[str, msgspec.Meta(min_length=1)]
    partials: tuple[Heard, ...]
    final: Heard


_decode: Final = msgspec.json.Decoder(RecordedUtterance).decode


def read_recording(path: str) -> Mapping[str, RecordedUtterance]:
    """Return the utterances of a file by their ids. Raises ValueError, with a sentence that names the line at fault."""
    try:
        state = Path(path).stat()
        if state.st_size > _MAX_BYTES:
            raise ValueError(f"{path} has more than {_MAX_BYTES} bytes: give a smaller one")
        return _read(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; give the file of a recording") from None


@lru_cache(maxsize=4)
def _read(path: str, changed_unix_ns: int, size_bytes: int) -> Mapping[str, RecordedUtterance]:
    del changed_unix_ns, size_bytes  # every call has a caller of its own: a file that is unchanged is read once
    found: dict[str, RecordedUtterance] = {}
    for number, line in enumerate(Path(path).read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            recorded = _decode(line)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ValueError(f"line {number} of {path} is no recorded utterance: {error}") from None
        if recorded.utterance in found:
            raise ValueError(f"line {number} of {path}: there is a line for {recorded.utterance!r} before it")
        found[recorded.utterance] = recorded
    if not found:
        raise ValueError(f"{path} has no recorded utterance: record a run with --keep-transcripts")
    return found


def written(recorded: RecordedUtterance) -> bytes:
    """Return an utterance as a line of such a file."""
    return msgspec.json.encode(recorded) + b"\n"
