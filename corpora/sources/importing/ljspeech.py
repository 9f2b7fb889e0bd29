"""LJSpeech and similar layouts: metadata.csv with ID|text|normalized text, without a header, and wavs/ID.wav.

The normalized text (numbers and abbreviations written out) is used, or the other one if it is missing.
"""

from collections.abc import Iterator
from pathlib import Path

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.items import Found, Item, Layout, Settings, each
from corpora.sources.importing.transcripts import read_lines
from corpora.sources.importing.tree import SourceTree, same_name

_LIST = "metadata.csv"
_FOLDER = "wavs"
_SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")


def _list(tree: SourceTree) -> Path:
    return same_name(tree.root / _LIST) if tree.file is None else tree.file


def _audio(tree: SourceTree, name: str) -> Path:
    below = tree.root / _FOLDER
    ends = (*_SUFFIXES, *(end.upper() for end in _SUFFIXES))
    suffix = next((end for end in ends if (below / f"{name}{end}").is_file()), "" if "." in name else ".wav")
    return tree.find(f"{name}{suffix}", _FOLDER)


def _rows(tree: SourceTree) -> Iterator[tuple[str, list[str]]]:
    listing = _list(tree)
    for number, line in read_lines(tree.find(tree.shown(listing)), listing.name):
        yield f"{listing.name}:{number}", [cell.strip() for cell in line.split("|")]


def _items(tree: SourceTree, settings: Settings) -> Found:
    def item(cells: list[str]) -> Item:
        if not 2 <= len(cells) <= 3:
            raise CorpusError(f"has {len(cells)} cells instead of ID|text|normalized text; correct it.")
        audio = _audio(tree, cells[0])
        return Item(name=cells[0], audio=audio, shown=tree.shown(audio), text=cells[-1] or cells[1] or None)

    yield from each(_rows(tree), item)


def _fits(tree: SourceTree) -> bool:
    if _list(tree).name.lower() != _LIST or not _list(tree).is_file():
        return False
    try:
        _, cells = next(_rows(tree), ("", [""]))
        return 2 <= len(cells) <= 3 and _audio(tree, cells[0]).is_file()
    except CorpusError:
        return False


LJSPEECH = Layout("ljspeech", _fits, _items)
