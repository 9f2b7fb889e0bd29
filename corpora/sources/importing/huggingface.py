"""Hugging Face audio folders: metadata.csv or metadata.jsonl with file_name and a text, in any folder of the source.

File names are relative to the folder of their metadata.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.items import Found, Item, Layout, Settings, each
from corpora.sources.importing.transcripts import read_header, read_objects, read_table, string
from corpora.sources.importing.tree import SourceTree, has_suffix

_NAMES = ("metadata.csv", "metadata.jsonl")
_FILE_FIELDS = ("file_name", "audio_file_name")
_TEXT_FIELDS = ("transcription", "text", "sentence", "transcript", "normalized_text", "raw_text")
_HEAD_BYTES = 65_536


def _metadata(tree: SourceTree) -> Iterator[Path]:
    named = [tree.file] if tree.file is not None else tree.walk()
    yield from (file for file in named if file.name.lower() in _NAMES and _names_files(tree, file))


def _names_files(tree: SourceTree, file: Path) -> bool:
    if has_suffix(file, ".csv"):
        return bool(read_header(file, tree.shown(file)) & set(_FILE_FIELDS))
    try:
        with file.open("rb") as content:
            head = content.read(_HEAD_BYTES)
    except OSError:
        return False
    return any(f'"{field}"'.encode() in head for field in _FILE_FIELDS)


def _rows(tree: SourceTree) -> Iterator[tuple[str, tuple[str, Mapping[str, Any] | None]]]:
    """Every row with its location, and the folder that its file name is relative to."""
    for file in _metadata(tree):
        shown = tree.shown(file)
        path = tree.find(shown)
        rows = read_table(path, shown) if has_suffix(file, ".csv") else read_objects(path, shown)
        yield from ((f"{shown}:{line}", (tree.shown(file.parent), row)) for line, row in rows)


def _items(tree: SourceTree, settings: Settings) -> Found:
    if not any(True for _ in _metadata(tree)):
        raise CorpusError(
            f"{tree.file or tree.root}: contains no {' or '.join(_NAMES)} with a {_FILE_FIELDS[0]}; "
            "give the folder that does."
        )

    def item(located_row: tuple[str, Mapping[str, Any] | None]) -> Item:
        folder, row = located_row
        if row is None:
            raise CorpusError("is not a JSON object; write one object per line.")
        audio = tree.find(string(row, *_FILE_FIELDS) or "", folder)
        return Item(
            name=str(Path(tree.shown(audio)).with_suffix("")),
            audio=audio,
            shown=tree.shown(audio),
            text=string(row, *_TEXT_FIELDS),
            speaker=string(row, "speaker", "speaker_id", "client_id"),
            language=string(row, "language", "locale", "lang"),
            domain=string(row, "domain"),
            license=string(row, "license", "license"),
        )

    yield from each(_rows(tree), item)


def _fits(tree: SourceTree) -> bool:
    return any(True for _ in _metadata(tree))


HUGGINGFACE = Layout("huggingface", _fits, _items)
