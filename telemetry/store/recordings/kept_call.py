"""The recording of a call: an index in JSON and, if audio was kept, a FLAC file of two channels.

The first channel is what the caller sent, the second what it heard, as its player placed it. Both are on the clock of
the call's turns: sample n was spoken, or played, at `began_perf_ns` + n / `rate_hz`.

Names come from the network and from users, so files are not named after them: the folder of a run and the files of a
call have names made of hashes, with the seconds when the file was made and when it expires.
"""

import hashlib
import re
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

FOLDER: Final = "recordings"
INDEX_SUFFIX: Final = ".json"
AUDIO_SUFFIX: Final = ".flac"
UNFINISHED_SUFFIX: Final = ".part"
FORMAT: Final = 1
NS_PER_S: Final = 1_000_000_000
CHANNELS: Final = 2  # the caller, then the service

_RUN_NAME: Final = re.compile(r"run-[0-9a-f]{32}")
_FILE_NAME: Final = re.compile(r"([0-9a-f]{32})-([0-9]{1,12})-([0-9]{1,12})(\.json|\.flac)")
_RUN_DIGITS: Final = 32


class PartialText(msgspec.Struct, frozen=True, array_like=True):
    """A partial transcript, and how long after the first speech sample that arrived."""

    after_ns: int
    text: str


class KeptTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of a kept call. Moments are of the caller's monotonic clock; texts are None where they were not kept."""

    turn_index: int
    started_perf_ns: int
    ended_perf_ns: int
    first_sample: int = 0  # of the audio: where the turn began and ended
    end_sample: int = 0
    asked: str | None = None  # the words of the clip
    partials: tuple[PartialText, ...] = ()
    transcript: str | None = None  # as the service recognized it
    reply: str | None = None  # the words of the answer, where the wire has them


class MissingAudio(msgspec.Struct, frozen=True, array_like=True):
    """A period of the second channel that is silent because its audio was dropped."""

    first_sample: int
    end_sample: int
    reason: str


class KeptCall(msgspec.Struct, frozen=True, kw_only=True):
    """The index of a call. `rate_hz` is None where no audio was kept."""

    run_id: str
    call_id: str
    trace_id: str
    created_unix_ns: int
    keep_until_unix_ns: int
    turns: tuple[KeptTurn, ...]
    format: int = FORMAT
    rate_hz: int | None = None
    samples: int = 0
    began_perf_ns: int = 0
    missing: tuple[MissingAudio, ...] = ()
    note: str | None = None  # why the audio ends early, or is not there

    def sample_at(self, perf_ns: int) -> int:
        """The sample that was spoken or played at a time of the turns' clock, within the audio."""
        rate_hz = self.rate_hz or 0
        return min(max(0, (perf_ns - self.began_perf_ns) * rate_hz // NS_PER_S), self.samples)

    def turn(self, turn_index: int) -> KeptTurn | None:
        """The turn with a number."""
        return next((turn for turn in self.turns if turn.turn_index == turn_index), None)


class KeptFile(NamedTuple):
    """The contents of a file's name."""

    call: str
    created_unix_s: int
    expires_unix_s: int
    suffix: str


def run_folder(recordings: Path, run_id: str) -> Path:
    """The folder of a run's calls."""
    return recordings / f"run-{_hashed(run_id)}"


def file_stem(call_id: str, created_unix_ns: int, keep_until_unix_ns: int) -> str:
    """The name of a call's files, without the suffix."""
    return f"{_hashed(call_id)}-{created_unix_ns // NS_PER_S}-{-(-keep_until_unix_ns // NS_PER_S)}"


def call_key(call_id: str) -> str:
    """Return the prefix of the names of a call's files."""
    return _hashed(call_id)


def kept_file(name: str) -> KeptFile | None:
    """Parse a file name; None for a file that is not ours."""
    match = _FILE_NAME.fullmatch(name)
    return None if match is None else KeptFile(match[1], int(match[2]), int(match[3]), match[4])


def is_run_folder(name: str) -> bool:
    """Return whether a folder holds the calls of a run."""
    return _RUN_NAME.fullmatch(name) is not None


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_RUN_DIGITS]
