"""Finds and reads the recordings of a run's calls: that of one call, and those whose texts hold some words. Damaged,
foreign and missing files are answers, not errors.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from telemetry.store.recordings.kept_call import (
    AUDIO_SUFFIX,
    FOLDER,
    FORMAT,
    INDEX_SUFFIX,
    NS_PER_S,
    KeptCall,
    call_key,
    kept_file,
    run_folder,
)

# Reading so many small files takes about a second.
MOST_CALLS: Final = 10_000
_MOST_TURNS: Final = 20_000
_INDEX_BYTES_MAX: Final = 64 << 20


class FoundCall(msgspec.Struct, frozen=True):
    """The recording of a call: `call` is None, with a sentence in `fault`, for one that cannot be read."""

    call: KeptCall | None = None
    audio: str | None = None  # the path of the audio
    fault: str | None = None


def find_call(store: Path, run_id: str, call_id: str, now_unix_ns: int) -> FoundCall | None:
    """Return the recording of a call next to a store; None if there is none, or it has expired."""
    index = next(iter(_indexes(store, run_id, now_unix_ns, call_key(call_id))), None)
    if index is None:
        return None
    kept = _read(index)
    call = kept.call
    if call is None:
        return kept
    if (call.run_id, call.call_id) != (run_id, call_id):
        return FoundCall(fault=f"{index.name}: belongs to another call")
    if call.rate_hz is None:
        return kept
    audio = index.with_suffix(AUDIO_SUFFIX)
    if not audio.is_file() or audio.is_symlink():
        return FoundCall(call, fault=f"{audio.name}: is missing")
    return FoundCall(call, str(audio))


def calls_with_words(store: Path, run_id: str, words: str, now_unix_ns: int) -> tuple[list[tuple[str, int]], int, bool]:
    """The turns (call and number) whose kept texts contain these words, in any case; the number of calls searched, and
    whether these were all."""
    indexes, wanted = _indexes(store, run_id, now_unix_ns), words.casefold()
    turns: list[tuple[str, int]] = []
    searched = 0
    for index in indexes[:MOST_CALLS]:
        call = _read(index).call
        if call is None or call.run_id != run_id:
            continue
        searched += 1
        for turn in call.turns:
            texts = (turn.asked, turn.transcript, turn.reply)
            if any(text is not None and wanted in text.casefold() for text in texts):
                turns.append((call.call_id, turn.turn_index))
    return turns[:_MOST_TURNS], searched, len(indexes) <= MOST_CALLS and len(turns) <= _MOST_TURNS


def _indexes(store: Path, run_id: str, now_unix_ns: int, prefix: str = "") -> list[Path]:
    """The indexes of a run's calls that have not expired, in the order of their names."""
    folder = run_folder(store / FOLDER, run_id)
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.startswith(prefix))
    except OSError:
        return []
    known = ((name, kept_file(name)) for name in names)
    return [
        folder / name
        for name, file in known
        if file is not None and file.suffix == INDEX_SUFFIX and file.expires_unix_s * NS_PER_S > now_unix_ns
    ]


def _read(index: Path) -> FoundCall:
    """The call of an index, without its audio."""
    try:
        with index.open("rb") as file:
            call = msgspec.json.decode(file.read(_INDEX_BYTES_MAX + 1), type=KeptCall)
    except OSError as error:
        return FoundCall(fault=f"{index.name}: cannot be read ({error.strerror})")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return FoundCall(fault=f"{index.name}: is damaged: it is not the index of a call")
    if call.format != FORMAT:
        return FoundCall(fault=f"{index.name}: is of format {call.format}; this version reads format {FORMAT}")
    return FoundCall(call)
