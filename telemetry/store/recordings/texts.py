"""Searches the kept texts of the calls of a run for words."""

import os
from pathlib import Path
from typing import Final

import msgspec

from telemetry.store.recordings.kept_call import FOLDER, INDEX_SUFFIX, NS_PER_S, KeptCall, kept_file, run_folder

# Reading so many small files takes about a second.
MOST_CALLS: Final = 10_000
_MOST_TURNS: Final = 20_000
_INDEX_BYTES_MAX: Final = 4 << 20


def calls_with_words(store: Path, run_id: str, words: str, now_unix_ns: int) -> tuple[list[tuple[str, int]], int, bool]:
    """The turns (call and number) whose kept texts contain these words, in any case; the number of calls searched, and
    whether these were all."""
    folder, wanted = run_folder(store / FOLDER, run_id), words.casefold()
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(INDEX_SUFFIX))
    except OSError:
        return [], 0, True
    turns: list[tuple[str, int]] = []
    searched = 0
    for name in names[:MOST_CALLS]:
        known = kept_file(name)
        if known is None or known.expires_unix_s * NS_PER_S <= now_unix_ns:
            continue
        call = _read(folder / name)
        if call is None or call.run_id != run_id:
            continue
        searched += 1
        for turn in call.turns:
            texts = (turn.asked, turn.transcript, turn.reply)
            if any(text is not None and wanted in text.casefold() for text in texts):
                turns.append((call.call_id, turn.turn_index))
    return turns[:_MOST_TURNS], searched, len(names) <= MOST_CALLS and len(turns) <= _MOST_TURNS


def _read(index: Path) -> KeptCall | None:
    try:
        with index.open("rb") as file:
            return msgspec.json.decode(file.read(_INDEX_BYTES_MAX), type=KeptCall)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
