"""Finds and reads the recording of a call. Damaged, foreign and missing files are answers, not errors."""

import os
from pathlib import Path
from typing import Final

import msgspec

from telemetry.store.recordings.kept_call import (
    AUDIO_SUFFIX,
    FOLDER,
    FORMAT,
    INDEX_SUFFIX,
    KeptCall,
    call_key,
    kept_file,
    run_folder,
)

_INDEX_BYTES_MAX: Final = 64 << 20


class FoundCall(msgspec.Struct, frozen=True):
    """The recording of a call: `call` is None, with a sentence in `fault`, for one that cannot be read."""

    call: KeptCall | None = None
    audio: str | None = None  # the path of the audio
    fault: str | None = None


def find_call(store: Path, run_id: str, call_id: str, now_unix_ns: int) -> FoundCall | None:
    """Return the recording of a call next to a store; None if there is none, or it has expired."""
    folder, key = run_folder(store / FOLDER, run_id), call_key(call_id)
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.startswith(key))
    except OSError:
        return None
    for name in names:
        known = kept_file(name)
        if known is not None and known.suffix == INDEX_SUFFIX and known.expires_unix_s * 10**9 > now_unix_ns:
            return _read(folder / name, run_id, call_id)
    return None


def _read(index: Path, run_id: str, call_id: str) -> FoundCall:
    try:
        with index.open("rb") as file:
            content = file.read(_INDEX_BYTES_MAX + 1)
        call = msgspec.json.decode(content, type=KeptCall)
    except OSError as error:
        return FoundCall(fault=f"{index.name}: cannot be read ({error.strerror})")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return FoundCall(fault=f"{index.name}: is damaged: it is not the index of a call")
    if call.format != FORMAT:
        return FoundCall(fault=f"{index.name}: is of format {call.format}; this version reads format {FORMAT}")
    if (call.run_id, call.call_id) != (run_id, call_id):
        return FoundCall(fault=f"{index.name}: belongs to another call")
    if call.rate_hz is None:
        return FoundCall(call)
    audio = index.with_suffix(AUDIO_SUFFIX)
    if not audio.is_file() or audio.is_symlink():
        return FoundCall(call, fault=f"{audio.name}: is missing")
    return FoundCall(call, str(audio))
